#!/usr/bin/env python3
"""The mixed text of bench/tokenizers.py: manuals in more than eight languages and source code, from Debian packages.

    bench/mixed_text.py [FOLDER] [--megabytes 200]

Downloads the packages that FOLDER/packages lacks (apt-get download: what this machine's sources offer), unpacks them
there and writes FOLDER/mixed.txt, the documents one after another, and FOLDER/mixed.ends, where each ends (u64, little
endian). A document is a file that is UTF-8: manual pages and text as they are, HTML without its tags, source code; none
twice. Each language and each of the sources of code gives at most its share, and the order is that of the SHA-256 of
the documents, so any prefix is as mixed as the whole. FOLDER is outside the tree: $TALLY_MIXED, else
~/.cache/tally/mixed. Prints what each language gave. Needs apt-get and dpkg-deb, no root.
"""
import argparse
import gzip
import hashlib
import html
import os
import pathlib
import re
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LANGUAGES = "cs da de el en es fi fr hu id it ja ko nb nl pl pt ro ru sr sv tr uk vi zh".split()
DOCUMENTS = ["installation-guide-amd64", "debian-handbook",
             *(f"manpages-{x}" for x in "cs da de el es fi fr hu id it ja nb nl pl pt-br ro ru sr sv tr uk vi zh".split()),
             *(f"manpages-{x}-dev" for x in "cs da de es fr it ja nl pl pt-br ru uk".split()), "manpages", "manpages-dev",
             *(f"debian-reference-{x}" for x in "de en es fr id it ja pt pt-br zh-cn zh-tw".split()),
             *(f"maint-guide-{x}" for x in "ca de es fr it ja ru vi zh-cn zh-tw".split()),
             *(f"developers-reference-{x}" for x in "de fr it ja ru".split()),
             *(f"aptitude-doc-{x}" for x in "cs es fi fr it ja nl ru".split())]
CODE = {"libboost1.81-dev": (".hpp", ".ipp"), "golang-1.19-src": (".go", ".s"), "rust-src": (".rs",),
        "libpython3.11-testsuite": (".py",), "libpython3.11-stdlib": (".py",), "perl-modules-5.36": (".pl", ".pm", ".pod"),
        "node-typescript": (".js", ".ts"), "emacs-el": (".el", ".el.gz")}
MOST_OF_A_LANGUAGE, MOST_OF_A_SOURCE = 16_000_000, 20_000_000
MOST_OF_A_DOCUMENT = 1_000_000


def download(packages, folder):
    folder.mkdir(parents=True, exist_ok=True)
    missing = [p for p in packages if not list(folder.glob(f"{p}_*.deb"))]
    for start in range(0, len(missing), 16):
        done = subprocess.run(["apt-get", "download", *missing[start:start + 16]], cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"apt-get download, in {folder}: {done.stderr.strip()}\nis `apt-get update` needed?")
    for package in packages:
        archive, out = next(folder.glob(f"{package}_*.deb")), folder / package
        if not out.exists():
            partial = folder / f"{package}.part"
            subprocess.run(["dpkg-deb", "-x", archive, partial], check=True)
            partial.rename(out)


def language_of(package, path):
    """The language of a document by its folder or name (de, zh_CN, .pt-br.), else by the package's name."""
    for part in reversed(re.split(r"[/.]", path)):
        short = re.split(r"[-_@]", part)[0]
        if short in LANGUAGES and re.fullmatch(r"[a-z]{2}([-_@][A-Za-z-]+)?", part):
            return short
    found = re.search(r"-([a-z]{2})(-[a-z]{2})?(-dev)?$", package)
    return found.group(1) if found and found.group(1) in LANGUAGES else "en"


def text_of(path):
    """The document's bytes, or None when it is none."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    if not 256 <= len(data) <= MOST_OF_A_DOCUMENT:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if "\0" in text:
        return None
    if path.name.endswith(".html"):
        text = re.sub(r"(?is)<(script|style|head)\b.*?</\1>|<!--.*?-->", "", text)
        text = re.sub(r"\n\s*\n+", "\n\n", html.unescape(re.sub(r"<[^>]*>", "", text))).strip() + "\n"
        text = text.encode("utf-8", "replace").decode()  # a reference to a surrogate becomes '?'
    return text.encode()


def candidates(folder):
    """(group, path) of every file that may be a document."""
    for package in [*DOCUMENTS, *CODE]:
        base = folder / package
        for path in sorted(p for p in base.rglob("*") if p.is_file() and not p.is_symlink()):
            name = str(path.relative_to(base))
            if package in CODE:
                if name.endswith(CODE[package]):
                    yield package, path
            elif "/man/" in name or name.endswith((".html", ".txt", ".txt.gz")):
                yield language_of(package, name), path


def documents_of(folder, wanted=None):
    """{group: [(SHA-256, document)]}, of all groups or those wanted."""
    groups, seen = {}, set()
    for group, path in candidates(folder / "packages"):
        data = text_of(path) if wanted is None or group in wanted else None
        if data:
            digest = hashlib.sha256(data).digest()
            if digest not in seen:
                seen.add(digest)
                groups.setdefault(group, []).append((digest, data))
    return groups


def samples(folder, groups, size):
    """{group: (text to learn from, text to look at)}, different documents, about `size` and a quarter of it in bytes."""
    found = {}
    for group, documents in documents_of(folder, groups).items():
        parts = [[], []]
        for _, data in sorted(documents):
            for part, most in zip(parts, (size, size // 4)):
                if sum(map(len, part)) < most:
                    part.append(data)
                    break
        found[group] = tuple(b"".join(part) for part in parts)
    return found


def build(folder, size):
    groups = documents_of(folder)
    chosen, rows = [], []
    for group, documents in sorted(groups.items()):
        left = MOST_OF_A_SOURCE if group in CODE else MOST_OF_A_LANGUAGE
        count = total = 0
        for digest, data in sorted(documents):
            if total + len(data) > left:
                break
            chosen.append((digest, data))
            count, total = count + 1, total + len(data)
        rows.append((group, count, total))
    end, ends = 0, []
    with open(folder / "mixed.txt.part", "wb") as out:
        for _, data in sorted(chosen):
            if end + len(data) > size:
                break
            out.write(data)
            end += len(data)
            ends.append(end)
    (folder / "mixed.ends").write_bytes(struct.pack(f"<{len(ends)}Q", *ends))
    (folder / "mixed.txt.part").rename(folder / "mixed.txt")
    archives = sorted(a.name for a in (folder / "packages").glob("*.deb"))
    (folder / "list.txt").write_text("".join(f"{g}: {n} documents, {b} bytes\n" for g, n, b in rows) +
                                     f"all: {len(ends)} documents, {end} bytes\n\n" + "\n".join(archives) + "\n")


def ready(folder, megabytes):
    """Builds what is missing; the folder's mixed.txt, mixed.ends and list.txt are there afterwards."""
    if (folder.resolve().is_relative_to(ROOT)):
        sys.exit(f"{folder} lies in the source tree; name a folder outside it")
    text = folder / "mixed.txt"
    if not text.exists() or not (folder / "mixed.ends").exists() or text.stat().st_size < megabytes * 990_000:
        download([*DOCUMENTS, *CODE], folder / "packages")
        build(folder, megabytes * 1_000_000)
        if text.stat().st_size < megabytes * 990_000:
            sys.exit(f"the packages give {text.stat().st_size:,} bytes, {megabytes} MB were wanted")
    return folder


def default_folder():
    return pathlib.Path(os.environ.get("TALLY_MIXED", pathlib.Path.home() / ".cache/tally/mixed"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=default_folder())
    parser.add_argument("--megabytes", type=int, default=200)
    options = parser.parse_args()
    print((ready(options.folder, options.megabytes) / "list.txt").read_text(), end="")


if __name__ == "__main__":
    main()
