"""Random wrong calls: whatever a function of the module is given, it returns or raises; it never ends the process.

TALLY_FUZZ_CALLS says how many (10,000); TALLY_FUZZ_SEED which. The calls run in a process of their own, so that a crash is
a failed test that names the last call.
"""
import os
import subprocess
import sys

import pytest

CALLS = int(os.environ.get("TALLY_FUZZ_CALLS", "10000"))
SEED = int(os.environ.get("TALLY_FUZZ_SEED", "0"))

PROGRAM = r"""
import faulthandler, inspect, math, random, sys
import tally
from tally import _C
import resource
resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))  # a size that is too large is an error, not a killed process
faulthandler.enable()
calls, seed, log = int(sys.argv[1]), int(sys.argv[2]), open(sys.argv[3], "w")
rng = random.Random(seed)
# What waits, trains, writes files or takes all memory by its nature is left out.
skip = {"train", "train_files", "plan", "build_data", "write_safetensors", "set_num_threads", "save", "load", "make",
        "from_file", "generate", "read_safetensors"}
small = [0, 1, -1, 2, 3, 7, -2, 17, True, False]
wild = [2**45, -2**31, 2**62, -2**63, 2**70, 1e308, -1e-320, math.nan, math.inf, -math.inf, 0.5, -2.5]
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

def parts(text):
    # A signature's parameters: split at commas outside brackets.
    found, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            found.append(text[start:i].strip())
            start = i + 1
    return [p for p in [*found, text[start:].strip()] if p]

def of_type(t):
    # A value that the annotation t allows, now and then another.
    if rng.random() < 0.05:
        return value()
    t = t.replace("tally._C.", "")
    options = [o.strip() for o in t.split("|")]
    t = rng.choice(options)
    if "Sequence[int]" in t:
        return rng.choice([rng.randrange(-3, 4), [rng.randrange(-2, 4) for _ in range(rng.randrange(4))]])
    if "Sequence[Tensor]" in t or "list[Tensor]" in t:
        x = tensor()
        return [x if rng.random() < 0.8 else tensor() for _ in range(rng.randrange(4))]
    if t == "Tensor":
        return tensor()
    if t == "int":
        return rng.choice(small) if rng.random() < 0.9 else rng.choice(wild[:5])
    if t == "float":
        return rng.choice([0.0, 0.5, 1.0, -1.5, 2, 1e-5, math.nan, math.inf])
    if t == "bool":
        return rng.random() < 0.5
    if t == "dtype":
        return rng.choice(dtypes)
    if t in ("device", "str"):
        return rng.choice(["cpu", "meta", "cuda:0", "sum", "mean", "none", "max", "a b -> b a", "... a -> a", "a b, b c -> a c",
                           "(a b) c -> a b c", "a * b", "i,i->", "reflect", "x"])
    return None if t == "None" else value()

def signed(f):
    # Arguments after one of f's signatures, or None where it has none.
    signatures = getattr(f, "__nb_signature__", None)
    if not signatures:
        return None
    text = rng.choice(signatures)[0]
    inside = text[text.index("(") + 1 : text.rindex(") ->") if ") ->" in text else text.rindex(")")]
    args, kwargs, by_name = [], {}, False
    for p in parts(inside):
        if p in ("*", "/"):
            by_name = by_name or p == "*"
        elif p.startswith("**"):
            kwargs.update({n: rng.choice(small) for n in rng.sample(["a", "b", "c", "h"], rng.randrange(3))})
        elif p.startswith("*"):
            args += shape() if rng.random() < 0.6 else [value() for _ in range(rng.randrange(3))]
            by_name = True
        else:
            name, _, t = p.split(" = ")[0].partition(": ")
            if " = " in p and rng.random() < 0.6:
                by_name = True
                continue
            v = of_type(t) if t else tensor()
            if by_name:
                kwargs[name] = v
            else:
                args.append(v)
    return args, kwargs

raised, returned = {}, 0
for i in range(calls):
    name, f, method = rng.choice(functions)
    args = [value() for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 4]))]
    if method is tally.Tensor and rng.random() < 0.9:
        args.insert(0, tensor())
    kwargs = {rng.choice(names): value() for _ in range(rng.choice([0, 0, 0, 1, 2]))}
    if rng.random() < 0.8:
        args, kwargs = signed(f) or (args, kwargs)
    log.seek(0), log.truncate()
    log.write(f"call {i}: {name}({', '.join(type(a).__name__ for a in args)}, {list(kwargs)})\n"), log.flush()
    try:
        r = f(*args, **kwargs)
        returned += 1
        if isinstance(r, tally.Tensor) and r.numel() < 1000:
            repr(r)
    except (RuntimeError, ValueError, IndexError, TypeError, BufferError, NotImplementedError, MemoryError, OverflowError,
            AttributeError, ZeroDivisionError, StopIteration, UnicodeError, KeyError) as e:
        raised[type(e).__name__] = raised.get(type(e).__name__, 0) + 1
        if "internal error" in str(e):
            raise SystemExit(f"{name}: {e}")
    if i % 100 == 0:
        _C.set_grad_mode(True)
_C.set_grad_mode(True)
x = tally.ones(3, requires_grad=True)
(x * 2).sum().backward()
assert x.grad.tolist() == [2, 2, 2], "the module no longer works"
print(calls, "calls;", returned, "returned;", raised)
"""


def test_random_wrong_calls_never_end_the_process(tmp_path):
    log = tmp_path / "last_call.txt"
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(CALLS), str(SEED), str(log)], capture_output=True, text=True,
                          timeout=60 + CALLS / 20)
    assert done.returncode == 0, f"seed {SEED}: {log.read_text()}{done.stdout[-2000:]}{done.stderr[-4000:]}"
    if "RuntimeError" not in done.stdout or "TypeError" not in done.stdout:
        pytest.fail(f"no call was refused: {done.stdout}")
