"""./run demo from the text to the samples, with a few steps. Only as a part of ./run test, which has built the program
that it uses: elsewhere it would build the tree first."""
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILT = ROOT / "build/release/bin/tally"


@pytest.mark.skipif(os.environ.get("TALLY") != str(BUILT), reason="needs build/release, as ./run test builds it")
def test_demo(tmp_path):
    bible = subprocess.run("bible -f gen1:1-deu34:12 </dev/null | sed 's/^[^ ]* //'", shell=True, capture_output=True,
                           text=True, check=True).stdout
    assert len(bible) > 500_000
    (tmp_path / "text.txt").write_text(bible)
    done = subprocess.run([ROOT / "run", "demo", tmp_path / "text.txt"], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "TALLY_DEMO_SECONDS": "1"})
    assert done.returncode == 0, done.stderr
    folder = ROOT / re.search(r"out/demo/\d+", done.stderr + done.stdout).group()
    for part in ("plan", "measured", "difference", "matmul FLOPs", "run directory"):
        assert part in done.stdout, part
    samples = done.stdout[done.stdout.index("run directory"):]
    words, known = re.findall(r"[A-Za-z]+", samples), set(re.findall(r"[A-Za-z]+", bible))
    assert len(words) > 60 and 2 * sum(w in known for w in words) >= len(words), samples
    assert (folder / "run/latest").read_text() == "step_00000060\n"
    subprocess.run(["rm", "-rf", folder], check=True)
