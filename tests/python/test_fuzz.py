"""Random wrong calls: whatever a function of the module is given, it returns or raises; it never ends the process.

TALLY_FUZZ_CALLS says how many (1,000); TALLY_FUZZ_SEED which. The calls run in a process of their own, so that a crash is
a failed test that names the last call.
"""
import os
import subprocess
import sys

import pytest

CALLS = int(os.environ.get("TALLY_FUZZ_CALLS", "1000"))
SEED = int(os.environ.get("TALLY_FUZZ_SEED", "0"))

PROGRAM = r"""
import faulthandler, inspect, math, random, sys
import tally
from tally import _C
faulthandler.enable()
calls, seed, log = int(sys.argv[1]), int(sys.argv[2]), open(sys.argv[3], "w")
rng = random.Random(seed)
# What waits, trains, writes files or takes all memory by its nature is left out.
skip = {"train", "train_files", "plan", "build_data", "write_safetensors", "set_num_threads", "save", "load", "make",
        "from_file", "generate", "read_safetensors"}
small = [0, 1, -1, 2, 3, 7, -2, 100, True, False]
wild = [2**31, -2**31, 2**62, -2**63, 2**70, 1e308, -1e-320, math.nan, math.inf, -math.inf, 0.5, -2.5]
dtypes = [v for v in vars(_C).values() if isinstance(v, tally.dtype)]

def shape():
    return [rng.choice([0, 1, 1, 2, 3, 4, 5]) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 4, 6]))]

def tensor():
    dtype = rng.choice([tally.float32] * 6 + [tally.int64] * 3 + dtypes)
    where = rng.choice(["cpu"] * 9 + ["meta"])
    x = tally.zeros(*shape(), dtype=dtype, device=where)
    if dtype == tally.float32 and rng.random() < 0.5 and where == "cpu":
        x = tally.randn(*x.shape)
    if x.ndim > 1 and rng.random() < 0.3:
        x = x.transpose(0, -1)
    if x.ndim and rng.random() < 0.2 and x.shape[0]:
        x = x[:1].expand(rng.choice([1, 3]), *x.shape[1:])
    if dtype in (tally.float32, tally.float64) and rng.random() < 0.2:
        x = x.detach().requires_grad_()
    return x

def value(depth=0):
    k = rng.random()
    if k < 0.45:
        return tensor()
    if k < 0.65:
        return rng.choice(small)
    if k < 0.72:
        return rng.choice(wild)
    if k < 0.78:
        return None
    if k < 0.83:
        return rng.choice(["sum", "mean", "cpu", "meta", "cuda:0", "a b -> b a", "... a -> a", "b t, t o -> b o", "\x00", "",
                           "none", "x" * 50])
    if k < 0.87:
        return rng.choice(dtypes)
    if k < 0.95 and depth < 2:
        items = [value(depth + 1) for _ in range(rng.randrange(4))]
        return rng.choice([list, tuple])(items)
    return rng.choice([slice(1, None, 2), slice(None, None, -1), Ellipsis, object(), b"bytes", {}, {"a": 1}, 1j, int, lambda *a: a[0],
                       tally.Tensor.__new__(tally.Tensor), range(3), {1, 2}, shape()])

functions = []
for owner in [_C, tally.nn.functional, tally.nn.init, tally.einops]:
    for name, f in vars(owner).items():
        if callable(f) and name not in skip and not name.startswith("__"):
            functions.append((f"{owner.__name__}.{name}", f, False))
classes = [c for c in vars(_C).values() if inspect.isclass(c)]
for c in classes:
    for name in dir(c):
        f = getattr(c, name, None)
        if callable(f) and name not in skip and name not in ("__class__", "__init_subclass__", "__subclasshook__", "__new__",
                "__getattribute__", "__dir__", "__reduce_ex__", "__sizeof__", "__setattr__", "__delattr__", "__getstate__"):
            functions.append((f"{c.__name__}.{name}", f, c))
names = ["dim", "keepdim", "dtype", "device", "requires_grad", "size", "alpha", "other", "index", "reduction", "nonsense"]
raised = {}
for i in range(calls):
    name, f, method = rng.choice(functions)
    args = [value() for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 4]))]
    if method is tally.Tensor and rng.random() < 0.9:
        args.insert(0, tensor())
    kwargs = {rng.choice(names): value() for _ in range(rng.choice([0, 0, 0, 1, 2]))}
    log.seek(0), log.truncate()
    log.write(f"call {i}: {name}({', '.join(type(a).__name__ for a in args)}, {list(kwargs)})\n"), log.flush()
    try:
        r = f(*args, **kwargs)
        if isinstance(r, tally.Tensor) and r.numel() < 1000:
            repr(r)
    except (RuntimeError, ValueError, IndexError, TypeError, BufferError, NotImplementedError, MemoryError, OverflowError,
            AttributeError, ZeroDivisionError, StopIteration, UnicodeError, KeyError) as e:
        raised[type(e).__name__] = raised.get(type(e).__name__, 0) + 1
        if "internal error" in str(e) or "bad_cast" in str(e) and False:
            raise SystemExit(f"{name}: {e}")
    if i % 100 == 0:
        _C.set_grad_mode(True)
x = tally.ones(3, requires_grad=True)
(x * 2).sum().backward()
assert x.grad.tolist() == [2, 2, 2], "the module no longer works"
print(calls, "calls;", raised)
"""


def test_random_wrong_calls_never_end_the_process(tmp_path):
    log = tmp_path / "last_call.txt"
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(CALLS), str(SEED), str(log)], capture_output=True, text=True,
                          timeout=60 + CALLS / 20)
    assert done.returncode == 0, f"seed {SEED}: {log.read_text()}{done.stdout[-2000:]}{done.stderr[-4000:]}"
    if "RuntimeError" not in done.stdout or "TypeError" not in done.stdout:
        pytest.fail(f"no call was refused: {done.stdout}")
