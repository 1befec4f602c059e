"""The module as a whole: docstrings, stubs, names, text of tensors, copies."""
import copy
import inspect
import os
import pathlib
import pickle
import runpy
import subprocess
import sys

import pytest
import tally
from tally import _C

ROOT = pathlib.Path(__file__).resolve().parents[2]


def without_a_docstring():
    """Public names that help() says nothing about; forward() of a layer is what its class says."""
    modules = [tally, tally.nn, tally.nn.functional, tally.nn.init, tally.nn.utils, tally.optim, tally.einops, tally.typing,
               tally.autograd, tally.cuda, tally.storage]
    seen = set()
    for module in modules:
        assert module.__doc__
        for name in dir(module):
            value = getattr(module, name)
            if name.startswith("_") or not callable(value) or id(value) in seen:
                continue
            if not str(getattr(value, "__module__", "")).startswith("tally"):
                continue
            seen.add(id(value))
            if not documented(value):
                yield f"{module.__name__}.{name}"
            for member in vars(value) if inspect.isclass(value) else ():
                if member.startswith("_") or member == "forward" or not callable(vars(value)[member]):
                    continue
                if not documented(getattr(value, member)):
                    yield f"{name}.{member}"


def documented(f):
    signatures = getattr(f, "__nb_signature__", None)  # (signature, docstring ...) of each overload
    if signatures:
        return any(s[1] for s in signatures)
    return bool((inspect.getdoc(f) or "").strip())


def test_everything_has_a_docstring():
    assert [name for name in without_a_docstring() if name != "Function.backward"] == []


def test_help_says_what_a_user_asks():
    for f, words in ((tally.matmul, "(..., M, K)"), (tally.quantize, "ValueError"), (tally.tensor, "RuntimeError"), (tally.einops.rearrange, "->"),
                     (tally.Tensor.view, "RuntimeError"), (tally.Tensor.backward, "RuntimeError"), (tally.nn.functional.embedding, "IndexError"),
                     (tally.Tensor.__getitem__, "IndexError"), (tally.Ledger, "flops")):
        assert words in f.__doc__, f.__doc__


def test_type_checkers_understand_the_stubs(tmp_path):
    """The stubs say the types of tensors, ops and shapes."""
    api = pytest.importorskip("mypy.api")
    (tmp_path / "use.py").write_text(USE)
    package = pathlib.Path(tally.__file__).parent
    env = os.environ.get("MYPYPATH")
    os.environ["MYPYPATH"] = str(package.parent)
    try:
        out, errors, code = api.run(["--no-incremental", "--follow-imports=silent", "--cache-dir", str(tmp_path / "c"), str(tmp_path / "use.py")])
    finally:
        os.environ.pop("MYPYPATH") if env is None else os.environ.update(MYPYPATH=env)
    lines = [line for line in out.splitlines() if "note: Revealed" in line]
    assert code == 0, out + errors
    assert all("Tensor" in line for line in lines[:6]) and "int" in lines[6] and len(lines) == 7, out


USE = """
import tally
from tally import nn
from tally.typing import Float, shapes
from tally import Tensor

@shapes
def f(x: Float[Tensor, "a b"], w: Float[Tensor, "b c"]) -> Float[Tensor, "a c"]:
    return x @ w

x = tally.ones(2, 3, dtype=tally.float32, requires_grad=True)
y = f(x, tally.zeros(3, 4))
reveal_type(x)
reveal_type(x + 1)
reveal_type(x[0])
reveal_type(tally.matmul(x, x.T))
reveal_type(tally.tensor([1, 2.5]).softmax(-1))
reveal_type(y)
reveal_type(x.numel())
n: int = x.size(0) + x.numel()
s: tuple[int, ...] = x.shape
v: list = x.tolist()
loss: float = float(x.sum().item()) + 1.5
p: bool = x.requires_grad
if x.grad is not None:
    reveal: Tensor = x.grad.clamp(min=-1.0, max=1).add_(1)
layer = nn.Linear(2, 3)
tally.nn.functional.cross_entropy(x, y)
"""


def test_stubs_are_those_of_the_module(tmp_path):
    pytest.importorskip("nanobind")
    subprocess.run([sys.executable, "-m", "nanobind.stubgen", "-q", "-P", "-m", "tally._C", "-o", str(tmp_path / "_C.pyi")], check=True)
    there = pathlib.Path(_C.__file__).parent / "_C.pyi"
    scope = runpy.run_path(str(ROOT / "python/qualify_stub.py"))
    assert there.read_text() == scope["qualified"]((tmp_path / "_C.pyi").read_text())
    compile(there.read_text(), str(there), "exec")


def test_dtypes_are_single_objects():
    assert tally.zeros(1).dtype is tally.float32 and tally.float is tally.float32 and tally.half is tally.float16
    assert repr(tally.bfloat16) == "tally.bfloat16" and pickle.loads(pickle.dumps(tally.int64)) is tally.int64
    assert tally.zeros(1, dtype=float).dtype is tally.float64 and tally.zeros(1, dtype=bool).dtype is tally.bool


def test_devices():
    d = tally.device("cuda", 1)
    assert d.type == "cuda" and d.index == 1 and str(d) == "cuda:1" and repr(d) == "device(type='cuda', index=1)"
    assert tally.device("cpu").index is None and len({tally.device("cuda:0"), tally.device("cuda", 0)}) == 1
    assert tally.device(d) == d and pickle.loads(pickle.dumps(d)) == d and tally.device("cpu") != "cpu"


def test_text_of_tensors():
    assert repr(tally.tensor([[1., 2], [3, 4]])) == "tensor([[1., 2.],\n        [3., 4.]])"
    assert "requires_grad" in repr(tally.ones(1, requires_grad=True)) and f"{tally.tensor(1.5):.2f}" == "1.50"


def test_values():
    x = tally.tensor([[1, 2], [3, 4]])
    assert x.tolist() == [[1, 2], [3, 4]] and [r.tolist() for r in x] == x.tolist() and len(x) == 2 and 3 in x and 9 not in x
    assert int(x[0, 1]) == 2 and float(x[1, 1]) == 4.0 and [10, 20, 30][tally.tensor(1)] == 20
    assert tally.tensor(2 ** 62 + 1).item() == 2 ** 62 + 1 and tally.tensor([True, False]).tolist() == [True, False]
    assert tally.tensor([1, 2.5]).dtype is tally.float32 and tally.tensor([]).shape == (0,) and tally.tensor([[], []]).shape == (2, 0)
    assert tally.tensor(x) is not x and tally.tensor([[1., 2]], dtype=tally.int32).tolist() == [[1, 2]]


def test_indexing():
    x = tally.arange(24).view(2, 3, 4)
    assert x[1, 2, 3] == 23 and x[-1].shape == (3, 4) and x[..., 0].shape == (2, 3) and x[None].shape == (1, 2, 3, 4)
    assert x[:, 1:, ::2].tolist() == [[[4, 6], [8, 10]], [[16, 18], [20, 22]]]
    assert x[[0, 1], [2, 0]].tolist() == [[8, 9, 10, 11], [12, 13, 14, 15]]
    assert x[x > 20].tolist() == [21, 22, 23] and x[tally.tensor([1, 1])].shape == (2, 3, 4)
    assert x[:, [True, False, True]].shape == (2, 2, 4)
    x[0] = 0
    x[1, :, 0] = tally.tensor([7, 8, 9])
    x[x > 20] = -1
    x[1, 0, 1:3] = [5, 6]
    assert x[0].sum() == 0 and x[1, :, 0].tolist() == [7, 8, 9] and x[1, 2, 3] == -1 and x[1, 0, 1:3].tolist() == [5, 6]
    with pytest.raises(ValueError):
        x[::-1]
    with pytest.raises(TypeError):
        x["a"]
    with pytest.raises(IndexError):
        x[1.5]


def test_operators():
    x = tally.tensor([5, -5])
    assert (x // 3).tolist() == [1, -2] and (x % 3).tolist() == [2, 1] and (x ** 2).tolist() == [25, 25]
    assert (1 + x).tolist() == [6, -4] and (1 - x).tolist() == [-4, 6] and (2 * x).tolist() == [10, -10]
    assert (10 / x).tolist() == [2, -2] and (2.0 ** tally.tensor([1., 2])).tolist() == [2, 4] and (-x).tolist() == [-5, 5]
    assert abs(x).tolist() == [5, 5] and (x > 0).tolist() == [True, False] and (x == 5).tolist() == [True, False]
    assert (x != 5).dtype is tally.bool and (~(x > 0)).tolist() == [False, True] and (x & 4).tolist() == [4, 0]
    y = x
    y += 1
    y *= 2
    assert y is x and x.tolist() == [12, -8]
    assert x.add_(1) is x and x.clamp(min=0).tolist() == [13, 0] and (x == None).__class__ is bool  # noqa: E711


def test_copies():
    x = tally.randn(3, requires_grad=True)
    y = copy.deepcopy(x)
    assert tally.equal(x, y) and y.requires_grad and y.data_ptr() != x.data_ptr()
    z = pickle.loads(pickle.dumps(x))
    assert tally.equal(x, z) and z.requires_grad
    b = tally.ones(2, dtype=tally.bfloat16)
    assert pickle.loads(pickle.dumps(b)).dtype is tally.bfloat16


def test_save_and_load(tmp_path):
    tree = {"a": [1, 2.5, "x", None, True], "t": (tally.ones(2), {"n": tally.arange(3)}), 3: tally.zeros(0, 2)}
    tally.save(tree, tmp_path / "f")
    back = tally.load(tmp_path / "f")
    assert back["a"] == tree["a"] and isinstance(back["t"], tuple) and back["t"][1]["n"].tolist() == [0, 1, 2]
    assert back[3].shape == (0, 2)
    with pytest.raises(TypeError):
        tally.save({"f": print}, tmp_path / "g")
    one = tally.ones(3, requires_grad=True)
    tally.save(one, tmp_path / "h")
    assert tally.load(tmp_path / "h").requires_grad


def test_conversions():
    x = tally.tensor([1.7, -1.7])
    assert x.long().tolist() == [1, -1] and x.to(tally.int32).dtype is tally.int32 and x.to("cpu") is not None
    assert x.to(tally.float64).to(x).dtype is tally.float32 and x.half().float().dtype is tally.float32
    assert x.to(dtype=tally.bfloat16).element_size() == 2 and x.to("meta").device == tally.device("meta")
    with pytest.raises(TypeError):
        x.to(3.5)
    w = tally.ones(2, requires_grad=True)
    w.to(tally.bfloat16).sum().backward()
    assert w.grad.tolist() == [1, 1]


def test_where_nonzero_and_clamp_with_tensors():
    x = tally.tensor([[0, 1], [2, 0]])
    rows, columns = tally.where(x)
    assert rows.tolist() == [0, 1] and columns.tolist() == [1, 0]
    assert isinstance(x.nonzero(as_tuple=True), tuple) and x[x.nonzero(as_tuple=True)].tolist() == [1, 2]
    assert tally.argwhere(x).tolist() == x.nonzero().tolist() == [[0, 1], [1, 0]]
    assert x.where(x > 1, -1).tolist() == [[-1, -1], [2, -1]]
    assert x.clamp(tally.tensor([1, 0]), 1).tolist() == [[1, 1], [1, 0]]
    assert tally.tensor([1.0, 5.0]).clamp_(max=tally.tensor(3.0)).tolist() == [1, 3]


def test_cat_promotes():
    assert tally.cat([tally.ones(1), tally.tensor([2])]).dtype == tally.float32
    assert tally.cat([tally.ones(0), tally.tensor([[2]])], 1).tolist() == [[2]]
    with pytest.raises(ValueError):
        tally.cat([])
    with pytest.raises(RuntimeError):
        tally.stack([])
