"""tally report and the report.html of a run, as a browser shows them."""
import html
import html.parser
import json
import re
import shutil
import struct
import subprocess
import zlib

import pytest

from conftest import Tally, tree

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
TRAIN = ["train", "--preset", "tiny", "--batch", 2, "--eval_every", 5, "--checkpoint_every", 5, "--sample_tokens", 20,
         "--log_every", 1]
WIDTHS = (1200, 400)
# What the page is asked in a copy of it without its own policy against scripts. The copy is shown in a frame, since a
# headless window is never narrower than 500 pixels.
MEASURE = """<script>window.onload = () => {
  const root = document.documentElement;
  const wide = [...document.querySelectorAll("section, svg, p, pre, h1")].filter(
    e => e.getBoundingClientRect().right > root.clientWidth + 0.5);
  const small = [...document.querySelectorAll("svg text")].filter(
    e => parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a < 10);
  const out = [...document.querySelectorAll("svg text")].filter(e => {
    const box = e.getBoundingClientRect(), svg = e.ownerSVGElement.getBoundingClientRect();
    return box.left < svg.left - 1 || box.right > svg.right + 1 || box.top < svg.top - 1 || box.bottom > svg.bottom + 1;
  });
  parent.document.documentElement.dataset.found = JSON.stringify({width: root.clientWidth, scroll: root.scrollWidth,
    wide: wide.map(e => e.outerHTML.slice(0, 80)), small: small.map(e => e.textContent),
    out: out.map(e => e.textContent)});
}</script></head>"""


def chromium(tmp_path, file, *flags):
    """Standard output of a headless browser that has loaded the file, and its log."""
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
         "--force-device-scale-factor=1", "--no-first-run", f"--user-data-dir={tmp_path / 'browser'}",
         "--enable-logging=stderr", "--v=0", *flags, file.as_uri()],
        capture_output=True, timeout=120)
    log = done.stderr.decode(errors="replace")
    assert done.returncode == 0, log
    return done.stdout.decode(), log


def console_lines(log):
    return [line for line in log.splitlines() if "CONSOLE" in line]


def sections(page):
    return dict(re.findall(r'<section id="([a-z-]+)">(.*?)</section>', page, re.S))


def layout(tmp_path, page, width):
    """What MEASURE finds in the page at a width."""
    policy = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
    assert len(policy.findall(page)) == 1
    copy = html.escape(policy.sub("", page).replace("</head>", MEASURE, 1))
    frame = tmp_path / f"measured_{width}.html"
    frame.write_text(f'<!doctype html><iframe style="border:0;width:{width}px;height:900px" srcdoc="{copy}"></iframe>')
    dom, log = chromium(tmp_path, frame, "--window-size=1300,1000", "--dump-dom")
    assert not console_lines(log), log
    return json.loads(html.unescape(re.search(r'data-found="([^"]*)"', dom).group(1)))


def colors_of(png):
    """Width, height and the number of distinct pixels in a sample of the rows of a PNG of 8 bits without interlacing."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data = 8, b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack(">IIBB", body[:10])
        if kind == b"IDAT":
            data += body
        at += 12 + size
    channels = {2: 3, 6: 4}[color]
    assert depth == 8
    raw, stride = zlib.decompress(data), width * channels + 1
    assert len(raw) == stride * height
    return width, height, len({raw[row * stride:(row + 1) * stride] for row in range(0, height, 7)})


class Links(html.parser.HTMLParser):
    """Everything in a page that a browser would load or run."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        names = dict(attributes)
        if tag in ("script", "img", "iframe", "object", "embed", "link", "base", "form", "audio", "video", "image"):
            self.found.append((tag, attributes))
        for name in names:
            if name.startswith("on") or name in ("src", "href", "xlink:href", "srcset", "action"):
                self.found.append((tag, name, names[name]))


def loads(page):
    parser = Links()
    parser.feed(page)
    return parser.found + re.findall(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", page)


@pytest.fixture(scope="module")
def run(prepared, tmp_path_factory, environment):
    """A run of 20 steps with samples, on the prepared data; read-only."""
    folder = tmp_path_factory.mktemp("report")
    Tally(folder, environment).run(*TRAIN, "--data", prepared / "data", "--out", "run", "--steps", 20)
    return folder / "run"


@pytest.fixture
def mine(run, tally):
    shutil.copytree(run, tally.folder / "run")
    return tally


def test_a_run_ends_with_its_report(run):
    page = (run / "report.html").read_text()
    assert loads(page) == []
    found = sections(page)
    assert {name: body.count("<svg") for name, body in found.items()} == {
        "summary": 0, "curves": 5, "memory": 2, "plan": 0, "scopes": 3, "roofline": 1, "samples": 0, "config": 0,
        "environment": 0}
    assert "no data" not in page and "20 of 20" in found["summary"]
    peak = json.loads((run / "ledger.json").read_text())["plan"]["peak_bytes"]["total"]
    assert f"{peak:,}" in found["plan"]


def test_the_timeline_reaches_the_planned_peak(run):
    plan = json.loads((run / "ledger.json").read_text())["plan"]
    values = plan["timeline"]["bytes"].values()
    assert max(map(sum, zip(*values))) == plan["peak_bytes"]["total"]
    assert [p["phase"] for p in plan["timeline"]["phases"]] == ["forward", "backward", "optimizer"]


@needs_chromium
def test_a_browser_shows_every_plot_without_complaint(run, tmp_path):
    dom, log = chromium(tmp_path, run / "report.html", "--window-size=1200,1000", "--dump-dom")
    assert not console_lines(log), log
    found = sections(dom)
    assert found["curves"].count("<polyline") == 6
    assert found["memory"].count('class="area') >= 5 and found["roofline"].count("<circle") >= 5
    assert found["scopes"].count('class="area') >= 15


@needs_chromium
def test_nothing_sticks_out_at_any_width(mine, tmp_path):
    mine.run(*TRAIN, "--data", json.loads((mine.folder / "run/config.json").read_text())["data"]["dir"], "--out",
             "other", "--steps", 8, "--lr", "0.01")
    mine.run("report", "run", "other", "--out", "both.html")
    for file in ("run/report.html", "both.html"):
        page = (mine.folder / file).read_text()
        for width in WIDTHS:
            found = layout(tmp_path, page, width)
            assert found["width"] == width, found
            assert found["scroll"] <= width and found["wide"] == [] and found["out"] == [], (file, found)
            assert found["small"] == [], (file, width, found)


@needs_chromium
@pytest.mark.parametrize("width", WIDTHS)
def test_screenshots_are_not_empty(run, tmp_path, width):
    picture = tmp_path / "page.png"
    chromium(tmp_path, run / "report.html", f"--window-size={width},1600", f"--screenshot={picture}")
    found_width, height, rows = colors_of(picture.read_bytes())
    assert (found_width, height) == (width, 1600) and rows > 50


def test_report_is_made_again_from_the_files(mine):
    file = mine.folder / "run/report.html"
    before = file.read_text()
    file.unlink()
    assert mine.run("report", "run", "--dry-run") == "would write run/report.html\n" and not file.exists()
    assert mine.run("report", "run/") == "run/report.html\n"

    def timeless(page):
        return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "", page)
    assert timeless(file.read_text()) == timeless(before)
    others = tree(mine.folder / "run")
    mine.run("report", "run", "--out", "copy.html")
    assert timeless((mine.folder / "copy.html").read_text()) == timeless(before)
    assert tree(mine.folder / "run") == others


def test_torn_and_missing_files(mine):
    metrics = mine.folder / "run/metrics.jsonl"
    metrics.write_text(metrics.read_text() + '{"step":21,"lo')
    (mine.folder / "run/ledger.json").unlink()
    mine.run("report", "run")
    page = (mine.folder / "run/report.html").read_text()
    assert page.count("There is no ledger.json yet.") == 4 and "not readable" not in page
    (mine.folder / "run/ledger.json").write_text('{"plan": ')
    mine.run("report", "run")
    assert "ledger.json is left out" in (mine.folder / "run/report.html").read_text()


def test_a_run_that_goes_on_and_one_that_was_resumed(tally, prepared):
    words = [*TRAIN, "--data", prepared / "data", "--out", "run"]
    started = tally.start(*words, "--steps", 100000)
    try:
        log = tally.folder / "run/metrics.jsonl"
        while not (log.exists() and log.stat().st_size):
            assert started.poll() is None
        tally.run("report", "run")
        assert "of 100,000" in (tally.folder / "run/report.html").read_text()
    finally:
        started.terminate()
        started.communicate(timeout=60)
    stopped = int((tally.folder / "run/latest").read_text().strip().removeprefix("step_"))
    page = (tally.folder / "run/report.html").read_text()  # written when it was stopped
    assert f"{stopped:,} of 100,000" in page and "no ledger.json" not in page
    tally.run("train", "--out", "run", "--resume", "--steps", stopped + 3)
    assert f"{stopped + 3:,} of {stopped + 3:,}" in (tally.folder / "run/report.html").read_text()


def test_errors_are_one_line(mine):
    folder = mine.folder
    assert "no run; name the folder" in mine.error("report")
    assert "nothing: no such folder" in mine.error("report", "nothing")
    (folder / "empty").mkdir()
    assert "empty: is not a run directory (no config.json)" in mine.error("report", "empty")
    assert "config.json: is not a run directory" in mine.error("report", "run/config.json")
    assert "no --out" in mine.error("report", "run", "run")
    assert "x.html" in mine.error("report", "run", "--out", "no/x.html")
    assert "run: cannot be written: it is a folder" in mine.error("report", "run", "--out", "run")
    (folder / "run/metrics.jsonl").write_text("")
    assert "run: has no metrics yet" in mine.error("report", "run")
    (folder / "run/config.json").write_text("{")
    assert "config.json:1:" in mine.error("report", "run")


ATTACK = "</pre></section><script>document.title='bad'</script><img src=x onerror=alert(1)>"


def test_hostile_text_is_text(mine, tmp_path):
    folder = mine.folder / "<img src=x onerror=alert(2)>"
    shutil.move(mine.folder / "run", folder)
    config = json.loads((folder / "config.json").read_text())
    config["train"]["sample_prompt"] = config["data"]["dir"] = ATTACK
    config["unknown" + ATTACK] = {ATTACK: ATTACK}
    (folder / "config.json").write_text(json.dumps(config))
    with open(folder / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"step": 20, "sample": ATTACK + "\x1b[31m\u202e\x00"}) + "\n")
    ledger = json.loads((folder / "ledger.json").read_text())
    ledger["plan"]["peak_moment"] = ledger["environment"]["cpu"] = ATTACK
    for entry in ledger["plan"]["scopes"]:
        entry["scope"] = entry["op"] = entry["phase"] = ATTACK
    (folder / "ledger.json").write_text(json.dumps(ledger))
    mine.run("report", folder)
    mine.run("report", folder, folder, "--out", "both.html")
    for file in (folder / "report.html", mine.folder / "both.html"):
        page = file.read_text()
        assert loads(page) == []
        assert page.count("&lt;script&gt;") >= 2
        if CHROMIUM:
            dom, log = chromium(tmp_path, file, "--dump-dom")
            assert not console_lines(log) and "<title>bad" not in dom
    assert "␛[31m" in (folder / "report.html").read_text() and "\x00" not in (folder / "report.html").read_text()
