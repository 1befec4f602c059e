"""The Python that README.md and docs/python.md show runs."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks(file):
    return re.findall(r"```python\n(.*?)```", (ROOT / file).read_text(), re.S)


@pytest.mark.parametrize("file", ["README.md", "docs/python.md"])
def test_python_of(file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TALLY_CACHE", str(tmp_path / "cache"))
    (tmp_path / "book.txt").write_text("In the beginning God created the heaven and the earth. " * 400)
    assert blocks(file)
    for text in blocks(file):
        text = text.replace('"steps": 200', '"steps": 2, "batch": 1, "context": 32, "eval_batches": 1, "sample_tokens": 0')
        exec(compile(text, file, "exec"), {})
    assert capsys.readouterr().out
