"""Gradients: backward, grad, hooks, Python-written functions, recomputation, threads."""
import threading

import pytest
import tally
from tally.autograd import Function


def test_no_grad():
    x = tally.ones(2, requires_grad=True)
    with tally.no_grad():
        assert not (x * 2).requires_grad and not tally.is_grad_enabled()
        with tally.enable_grad():
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad

    @tally.no_grad()
    def f(x):
        return x * 2

    assert not f(x).requires_grad and tally.is_grad_enabled()
    with pytest.raises(KeyError):
        with tally.no_grad():
            raise KeyError
    assert tally.is_grad_enabled()
    with tally.set_grad_enabled(False):
        assert not (x * 2).requires_grad


def test_grad_of_inputs():
    x, y = tally.ones(2, requires_grad=True), tally.full((2,), 3.0, requires_grad=True)
    gx, gy = tally.autograd.grad((x * y).sum(), [x, y])
    assert gx.tolist() == [3, 3] and gy.tolist() == [1, 1] and x.grad is None


def test_hooks():
    x = tally.ones(2, requires_grad=True)
    seen = []
    handle = x.register_hook(lambda g: seen.append(g.tolist()))
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    assert x.grad.tolist() == [20, 20] and seen == [[20, 20]]
    handle.remove()
    (x * 1).sum().backward()
    assert len(seen) == 1
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.tolist()))
    (x * 1).sum().backward()
    assert seen[-1] == [22, 22]


def test_an_error_in_a_hook_ends_the_backward():
    x = tally.ones(2, requires_grad=True)
    x.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        (x * 2).sum().backward()


class Cube(Function):
    @staticmethod
    def forward(ctx, x, scale):
        assert not tally.is_grad_enabled()
        ctx.save_for_backward(x)
        ctx.scale = scale
        return scale * x * x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, False)
        return 3 * ctx.scale * x * x * gradient, None


def test_function_with_its_own_backward():
    x = tally.tensor([1., 2, 3], requires_grad=True)
    y = Cube.apply(x, 2)
    assert y.tolist() == [2, 16, 54] and y.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [6, 24, 54]
    assert not Cube.apply(tally.ones(2), 2).requires_grad


class TwoOutputs(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a + b, a * b

    @staticmethod
    def backward(ctx, gs, gp):
        a, b = ctx.saved_tensors
        return gs + gp * b, gs + gp * a


def test_function_of_two_outputs_one_of_which_is_not_used():
    a, b = tally.ones(2, requires_grad=True), tally.full((2,), 3.0, requires_grad=True)
    _, p = TwoOutputs.apply(a, b)
    p.sum().backward()
    assert a.grad.tolist() == [3, 3] and b.grad.tolist() == [1, 1]


@pytest.mark.parametrize("wrong", [lambda g: (g, None, g), lambda g: g[:1], lambda g: "text"])
def test_wrong_gradients_are_refused(wrong):
    class Bad(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return wrong(g)

    x = tally.ones(2, requires_grad=True)
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        Bad.apply(x).sum().backward()


def test_an_error_in_backward_comes_out():
    class Bad(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Bad.apply(tally.ones(2, requires_grad=True)).sum().backward()


def test_recompute_gives_the_same_gradients():
    w = tally.randn(8, 8, requires_grad=True)
    x = tally.randn(4, 8)

    def f(x):
        return (x @ w).relu() @ w

    f(x).sum().backward()
    expected, w.grad = w.grad, None
    tally.autograd.recompute(f, x).sum().backward()
    assert tally.equal(w.grad, expected)


def test_offloaded_tensors_come_back():
    w = tally.randn(8, 8, requires_grad=True)
    with tally.autograd.offload_saved():
        y = (w @ w).relu() @ w
    y.sum().backward()
    expected, w.grad = w.grad, None
    ((w @ w).relu() @ w).sum().backward()
    assert tally.equal(w.grad, expected)


def test_threads_have_tapes_of_their_own():
    errors = []

    def work(seed):
        try:
            w = tally.full((64, 64), float(seed), requires_grad=True)
            for _ in range(20):
                w.grad = None
                with tally.no_grad():
                    w * 2
                (w @ w).sum().backward()
                assert (w.grad == 2 * 64 * seed).all()
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(i + 1,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_kernels_release_the_gil():
    ticks, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            ticks[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    x = tally.randn(1024, 1024)
    before = ticks[0]
    x @ x
    during = ticks[0] - before
    stop.set()
    thread.join()
    assert during > 0


def test_many_python_functions_in_a_chain():
    x = tally.ones(2, requires_grad=True)
    y = x
    for _ in range(300):
        y = Cube.apply(y, 1)
        y = y * 1
    y.sum().backward()
    assert x.grad is not None


def test_results_that_are_not_differentiable():
    class Sorted(Function):
        @staticmethod
        def forward(ctx, x):
            values, places = x.sort()
            weight = values * 0 + 1
            ctx.save_for_backward(places, None)
            ctx.mark_non_differentiable(weight, places)
            return values, weight, places

        @staticmethod
        def backward(ctx, g, g_weight, g_places):
            places, nothing = ctx.saved_tensors
            assert nothing is None and not g_weight.any()
            return tally.zeros(3).scatter(0, places, g)

    x = tally.tensor([3., 1, 2], requires_grad=True)
    values, weight, places = Sorted.apply(x)
    assert values.requires_grad and not weight.requires_grad and not places.requires_grad
    (values * tally.tensor([1., 2, 3])).sum().backward()
    assert x.grad.tolist() == [3, 1, 2]


def test_changes_of_a_part_are_recorded():
    x = tally.tensor([[1., 2.], [3., 4.]], requires_grad=True)
    w = tally.tensor([5., 6.], requires_grad=True)
    y = x * 2
    column = y[:, 1]
    y[0] += 1
    y[1] *= w
    y.view(-1).add_(1)
    column.mul_(3)
    assert y.tolist() == [[4, 18], [31, 147]]
    y.sum().backward()
    assert x.grad.tolist() == [[2, 6], [10, 36]] and w.grad.tolist() == [6, 24]


def test_changes_of_a_part_that_are_refused():
    x = tally.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf tensor that requires grad"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="a view of a leaf tensor that requires grad"):
        x[0].add_(1)
    with pytest.raises(RuntimeError, match="a leaf tensor that requires grad"):
        x[0] = 2
    with tally.no_grad():
        x[0] = 2
        part = (x * 1)[:2]
    assert x.tolist() == [2, 1, 1] and not part.requires_grad
    y = x * 1
    with tally.no_grad():
        part = y[:2]
    with pytest.raises(RuntimeError, match="was created in no_grad mode"):
        part.mul_(x[:2])
    z = y * y
    y[0] = 5
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_gradients_through_float8():
    x = tally.tensor([0.3, 2.0], requires_grad=True)
    (x.to(tally.float8_e4m3fn).to(tally.float32) * tally.tensor([3.3, 1000.0])).sum().backward()
    assert x.grad.tolist() == [3.25, 448]
