"""Cycles through tensors, hooks, functions of the user and modules are found by Python's collector; what is in use is not."""
import gc
import threading
import weakref

import pytest
import tally
from tally import nn
from tally.autograd import Function


class Double(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.note = [x]
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def leaf():
    return tally.ones(1000, requires_grad=True)


def hook_on_leaf():
    x = leaf()
    x.register_hook(lambda g: x * g)
    return x, x


def hook_on_result():
    x = leaf()
    y = x * 2
    y.register_hook(lambda g: y * g)
    return y, y


def post_accumulate_hook():
    x = leaf()
    x.register_post_accumulate_grad_hook(lambda leaf: x)
    return x, x


def hook_that_keeps_the_loss():
    x = leaf()
    loss = (x * x + x).sum()
    x.register_hook(lambda g: g * loss.detach())
    return x, loss


def hook_through_residual_connections():
    x = leaf()
    h = x
    for _ in range(20):
        h = h + h * 2
    h.register_hook(lambda g: g * end.detach().sign())
    end = h.sum() + (h * h).sum()
    return x, end


def function_of_the_user():
    x = leaf()
    y = Double.apply(x)
    y.grad_fn.name()
    keep = []

    class Closed(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.keep = keep
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    z = Closed.apply(y)
    keep.append(z)
    return z, keep[0]


def module_with_hooks():
    m = nn.Linear(100, 100)
    m.seen = []
    for p in m.parameters():
        p.register_hook(lambda g: m.seen.append(g))
    m.optimizer = tally.optim.AdamW(m.parameters())
    return m, m.weight


CYCLES = [hook_on_leaf, hook_on_result, post_accumulate_hook, hook_that_keeps_the_loss, hook_through_residual_connections,
          function_of_the_user, module_with_hooks]


@pytest.mark.parametrize("make", CYCLES)
def test_cycles_are_freed(make):
    gc.collect()
    before = tally.memory_allocated()
    watched = []
    for _ in range(20):
        a, b = make()
        watched += [weakref.ref(a), weakref.ref(b)]
        del a, b
    gc.collect()
    assert not [w for w in watched if w() is not None]
    gc.collect()
    assert tally.memory_allocated() <= before


@pytest.mark.parametrize("make", CYCLES)
def test_what_is_in_use_is_not_freed(make):
    a, b = make()
    for _ in range(3):
        gc.collect()
    assert weakref.ref(a)() is a and weakref.ref(b)() is b
    if isinstance(a, tally.Tensor):
        (a.sum() + b.sum()).backward()
    else:
        a(tally.ones(2, 100)).sum().backward()
        assert len(a.seen) == 2


def test_hooks_live_as_long_as_the_graph():
    seen = []

    def make():
        x = leaf()
        x.register_hook(lambda g: seen.append(x.shape))
        y = x * 2
        y.register_hook(lambda g: seen.append(y.shape))
        return y * 3, y.sum()

    first, second = make()
    gc.collect()
    del second
    gc.collect()
    first.sum().backward()
    assert seen == [(1000,), (1000,)]
    del first
    gc.collect()


def test_a_hook_removed_during_backward_and_collections_within():
    x = leaf()
    seen = []

    def hook(g):
        handle.remove()
        gc.collect()
        seen.append(x)
        return g * 2

    handle = x.register_hook(hook)
    (x * 1).sum().backward()
    (x * 1).sum().backward()
    assert len(seen) == 1 and x.grad[0] == 3


def test_collections_while_other_threads_run_backward():
    errors, stop = [], threading.Event()

    def work():
        try:
            while not stop.is_set():
                x = leaf()
                x.register_hook(lambda g: x.detach() * g)
                y = Double.apply(x)
                y.register_hook(lambda g: y.detach() * g)
                loss = (y * y).sum()
                loss.backward()
                assert x.grad[0] == 16, x.grad
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for _ in range(60):
        gc.collect()
        kept = [hook_that_keeps_the_loss() for _ in range(3)]
        gc.collect()
        assert all(loss.item() == 2000 for _, loss in kept)
    stop.set()
    for t in threads:
        t.join()
    assert not errors


def test_weak_references():
    x = tally.ones(2)
    gone = []
    w = weakref.ref(x, lambda _: gone.append(1))
    assert w() is x
    del x
    gc.collect()
    assert w() is None and gone == [1]


def test_a_cleared_tensor_can_still_be_looked_at():
    class Last:
        def __init__(self, x):
            self.x = x

        def __del__(self):
            seen.append(self.x.sum().item())

    seen = []
    x = leaf()
    last = Last(x)
    x.register_hook(lambda g: last)
    del x, last
    gc.collect()
    assert seen == [1000]
