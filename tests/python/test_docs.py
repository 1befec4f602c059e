"""The Python that README.md, docs/python.md and docs/tokenizers.md show runs."""
import os
import pathlib
import re
import subprocess
import sys

import pytest
import tally

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks(file):
    return re.findall(r"```python\n(.*?)```", (ROOT / file).read_text(), re.S)


@pytest.mark.parametrize("file", ["README.md", "docs/python.md", "docs/tokenizers.md"])
def test_python_of(file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TALLY_CACHE", str(tmp_path / "cache"))
    (tmp_path / "book.txt").write_text("In the beginning God created the heaven and the earth. " * 400)
    assert blocks(file)
    for text in blocks(file):
        text = text.replace('"steps": 200', '"steps": 2, "batch": 1, "context": 32, "eval_batches": 1, "sample_tokens": 0')
        exec(compile(text, file, "exec"), {})
    assert capsys.readouterr().out


def test_notes_page():
    """notes.py prints what docs/notes.md says; C++'s half is the ctest notes_page."""
    done = subprocess.run([sys.executable, ROOT / "tools/make_notes.py", "--check", "--python", sys.executable],
                          capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(pathlib.Path(tally.__file__).parents[1])})
    assert done.returncode == 0, done.stdout + done.stderr
