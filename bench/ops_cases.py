"""The ops of bench/ops_vs_torch.py, written once for both modules, whose names are the same.

A case is a function of (m, t, r): the module, t(array) -> tensor of it, r a NumPy generator; it gives a function without
arguments that is timed and returns tensors.
"""
CASES = {}


def case(name):
    def keep(function):
        CASES[name] = function
        return function
    return keep


def normal(r, *shape):
    return r.standard_normal(shape, dtype="float32")


@case("chain, contiguous")
def _(m, t, r):
    a, b = t(normal(r, 1024, 1024)), t(normal(r, 1024, 1024))
    return lambda: ((a * b + a) * 0.5 - b).relu()


@case("chain, strided")
def _(m, t, r):
    a, b = t(normal(r, 1024, 1024)).transpose(0, 1), t(normal(r, 1024, 2048))[:, ::2]
    return lambda: ((a * b + a) * 0.5 - b).relu()


@case("chain of functions")
def _(m, t, r):
    a = t(normal(r, 1024, 1024))
    return lambda: m.exp(-(a * a)).sqrt() * m.tanh(a)


@case("chain, broadcast")
def _(m, t, r):
    a, b, c = t(normal(r, 8, 512, 1024)), t(normal(r, 1024)), t(normal(r, 8, 512, 1))
    return lambda: (a + b) * c


@case("pow, tensors")
def _(m, t, r):
    a, b = t(abs(normal(r, 1024, 1024))), t(normal(r, 1024, 1024))
    return lambda: a ** b


@case("pow, a number")
def _(m, t, r):
    a = t(abs(normal(r, 1024, 1024)))
    return lambda: a ** 1.7


@case("comparison")
def _(m, t, r):
    a, b = t(normal(r, 1024, 1024)), t(normal(r, 1024, 1024))
    return lambda: a < b


@case("comparison, i64")
def _(m, t, r):
    a, b = t(r.integers(0, 9, (1024, 1024))), t(r.integers(0, 9, (1024, 1024)))
    return lambda: a == b


@case("where")
def _(m, t, r):
    a, b = t(normal(r, 1024, 1024)), t(normal(r, 1024, 1024))
    which = a > b
    return lambda: m.where(which, a, b)


for axis in range(3):
    for op in ("sum", "mean", "amax", "var"):
        @case(f"{op} of axis {axis}")
        def _(m, t, r, axis=axis, op=op):
            a = t(normal(r, 8, 512, 1024))
            return lambda: getattr(m, op)(a, dim=axis)


@case("argmax")
def _(m, t, r):
    a = t(normal(r, 8, 512, 1024))
    return lambda: m.argmax(a, dim=-1)


@case("cumsum")
def _(m, t, r):
    a = t(normal(r, 8, 512, 1024))
    return lambda: m.cumsum(a, dim=-1)


for axis in range(3):
    @case(f"softmax of axis {axis}")
    def _(m, t, r, axis=axis):
        a = t(normal(r, 8, 512, 1024))
        return lambda: m.softmax(a, dim=axis)


@case("log_softmax")
def _(m, t, r):
    a = t(normal(r, 8, 512, 1024))
    return lambda: m.nn.functional.log_softmax(a, dim=-1)


@case("softmax, forward and backward")
def _(m, t, r):
    a, g = t(normal(r, 8, 512, 1024)), t(normal(r, 8, 512, 1024))
    a.requires_grad = True

    def run():
        a.grad = None
        m.softmax(a, dim=-1).backward(g)
        return a.grad
    return run


@case("layer norm")
def _(m, t, r):
    a, w, b = t(normal(r, 8, 512, 1024)), t(normal(r, 1024)), t(normal(r, 1024))
    return lambda: m.nn.functional.layer_norm(a, (1024,), w, b)


@case("layer norm, forward and backward")
def _(m, t, r):
    inputs = [t(normal(r, 8, 512, 1024)), t(normal(r, 1024)), t(normal(r, 1024))]
    g = t(normal(r, 8, 512, 1024))
    for x in inputs:
        x.requires_grad = True

    def run():
        for x in inputs:
            x.grad = None
        m.nn.functional.layer_norm(inputs[0], (1024,), *inputs[1:]).backward(g)
        return [x.grad for x in inputs]
    return run


EINSUMS = {"ij,jk->ik": ((512, 512), (512, 512)), "bij,bjk->bik": ((16, 128, 256), (16, 256, 128)),
           "bthd,bshd->bhts": ((4, 128, 8, 64), (4, 128, 8, 64)), "bhts,bshd->bthd": ((4, 8, 128, 128), (4, 128, 8, 64)),
           "btd,hdk->bhtk": ((4, 128, 512), (8, 512, 64)), "bi,bj->bij": ((64, 256), (64, 256)),
           "bi,bj->bij, rows of 16": ((4096, 16), (4096, 16))}
for pattern, shapes in EINSUMS.items():
    @case(f"einsum {pattern}")
    def _(m, t, r, pattern=pattern, shapes=shapes):
        a, b = (t(normal(r, *s)) for s in shapes)
        return lambda: m.einsum(pattern.partition(", ")[0], a, b)


@case("gather")
def _(m, t, r):
    a, i = t(normal(r, 4096, 1024)), t(r.integers(0, 1024, (4096, 256)))
    return lambda: m.gather(a, 1, i)


@case("index_select")
def _(m, t, r):
    a, i = t(normal(r, 32768, 256)), t(r.integers(0, 32768, 8192))
    return lambda: m.index_select(a, 0, i)


@case("scatter_add")
def _(m, t, r):
    a, i, x = t(normal(r, 4096, 1024)), t(r.integers(0, 4096, (4096, 1024))), t(normal(r, 4096, 1024))
    return lambda: m.scatter_add(a, 0, i, x)


@case("embedding backward")
def _(m, t, r):
    w, i = t(normal(r, 32768, 256)), t(r.integers(0, 32768, (8, 1024)))
    w.requires_grad = True

    def run():
        w.grad = None
        m.nn.functional.embedding(i, w).sum().backward()
        return w.grad
    return run


@case("cross-entropy, 50,304 classes")
def _(m, t, r):
    x, y = t(normal(r, 256, 50304)), t(r.integers(0, 50304, 256))
    x.requires_grad = True

    def run():
        x.grad = None
        loss = m.nn.functional.cross_entropy(x, y)
        loss.backward()
        return loss, x.grad
    return run


@case("conv1d, kernel 3")
def _(m, t, r):
    x, w, b = t(normal(r, 8, 512, 1024)), t(normal(r, 512, 512, 3)), t(normal(r, 512))
    return lambda: m.nn.functional.conv1d(x, w, b, padding=1)


@case("conv1d, depthwise")
def _(m, t, r):
    x, w, b = t(normal(r, 8, 512, 1024)), t(normal(r, 512, 1, 4)), t(normal(r, 512))
    return lambda: m.nn.functional.conv1d(x, w, b, padding=3, groups=512)


@case("conv2d")
def _(m, t, r):
    x, w, b = t(normal(r, 8, 64, 56, 56)), t(normal(r, 64, 64, 3, 3)), t(normal(r, 64))
    return lambda: m.nn.functional.conv2d(x, w, b, padding=1)


@case("conv2d, stride 2")
def _(m, t, r):
    x, w, b = t(normal(r, 8, 64, 56, 56)), t(normal(r, 128, 64, 3, 3)), t(normal(r, 128))
    return lambda: m.nn.functional.conv2d(x, w, b, stride=2, padding=1)


@case("sort")
def _(m, t, r):
    a = t(normal(r, 512, 4096))
    return lambda: m.sort(a, dim=-1)[0]


@case("sort of one row")
def _(m, t, r):
    a = t(normal(r, 1 << 20))
    return lambda: m.sort(a)[0]


@case("topk")
def _(m, t, r):
    a = t(normal(r, 256, 50304))
    return lambda: m.topk(a, 50)[0]
