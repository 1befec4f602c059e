"""tools/check_layers.py finds what it is there for; tools/build_times.py reads ninja's log; course_tests.py names."""
import os
import subprocess
import sys

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import check_layers  # noqa: E402
import course_tests  # noqa: E402


def check(folder, files):
    for name, text in {"tally/layers.txt": "base ->\ncore -> base\nops -> core\ncli -> ops\n",
                       "tally/base/json.h": "", "tally/core/view.h": "", "tally/core/tensor.h": "",
                       "tally/ops/norm_kernels.h": '#include "tally/core/view.h"\n',
                       "tally/ops/helper.h": '#include "tests/support/support.h"\n', **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "cli").mkdir(exist_ok=True)
    return check_layers.check_tree(folder)[1]


@pytest.mark.parametrize("file, text", [
    ("tally/base/a.cpp", '#include "tally/core/view.h"\n'), ("tally/core/a.h", '#include "tally/ops/norm_kernels.h"\n'),
    ("tally/ops/norm_cpu.cpp", '#include "tally/core/tensor.h"\n'), ("tally/ops/a.cpp", "#include <CLI/CLI.hpp>\n"),
    ("cli/main.cpp", "#include <nlohmann/json.hpp>\n"), ("tally/ops/a.cpp", '#include "tally/tally.h"\n'),
    ("tally/ops/a.cpp", '#include "cli/args.h"\n'), ("tally/ops/a.cpp", '#include "norm_kernels.h"\n'),
    ("tally/new/a.cpp", ""), ("tally/ops/a.cpp", '#include "tests/support/support.h"\n'),
    ("tally/ops/a.cpp", '#include "tally/ops/helper.h"\n')])
def test_wrong_includes_are_found(tmp_path, file, text):
    assert check(tmp_path, {}) == []
    found = check(tmp_path, {file: text})
    assert len(found) == 1 and found[0].startswith(file)


def test_kernel_files_are_followed_through_headers(tmp_path):
    found = check(tmp_path, {"tally/ops/norm_kernels.h": '#include "tally/core/tensor.h"\n',
                             "tally/ops/norm_cpu.cpp": '#include "tally/ops/norm_kernels.h"\n'})
    assert found == ["tally/ops/norm_cpu.cpp: a kernel file may not reach tally/core/tensor.h"]


def test_cycles_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="cycle"):
        check(tmp_path, {"tally/layers.txt": "base -> core\ncore -> base\n"})


def test_this_tree(tmp_path):
    assert check_layers.check_tree(ROOT)[1] == []


@pytest.mark.parametrize("strict, code", [("0", 0), ("1", 1)])
def test_build_times(tmp_path, strict, code):
    (tmp_path / ".ninja_log").write_text("# ninja log v5\n0\t61000\t1\ta.cpp.o\t1\n0\t2000\t1\tb.cpp.o\t2\n")
    done = subprocess.run([sys.executable, ROOT / "tools/build_times.py", tmp_path], capture_output=True, text=True,
                          env={**os.environ, "TALLY_STRICT_TIMES": strict})
    assert done.returncode == code and "61.0 s  a.cpp.o" in done.stdout and "more than 60 s" in done.stdout


def test_numbers_of_the_notes_are_read_from_names(tmp_path):
    for name, text in {"tally/ops/a_test.cpp": "TEST(Notes, A001_One) {\n}\nTEST_F(NotesCuda, A240_Last) {\nTEST(Traps, A003_No) {\n",
                       "tests/python/test_a.py": "def test_A001_A002_two():\n    pass\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    found = course_tests.collect(tmp_path)
    assert found == {1: (["`tally/ops/a_test.cpp` A001_One"], ["`test_a.py` test_A001_A002_two"]),
                     2: ([], ["`test_a.py` test_A001_A002_two"]), 240: (["`tally/ops/a_test.cpp` A240_Last"], [])}
    wrong = list(course_tests.problems(found))
    assert any(w.startswith("A003 has no test") for w in wrong) and not any(w.startswith("A001") for w in wrong)
    assert any(w.startswith("A240 has a test and is listed") for w in wrong)
