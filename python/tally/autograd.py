"""Whether gradients are recorded, and functions with a backward of their own."""
import contextlib
import threading

from . import _C
from ._C import grad, is_grad_enabled, recompute  # noqa: F401


class _Switch(contextlib.ContextDecorator):
    """Turns recording on or off within a block or a function; each thread has its own stack of them."""

    def __init__(self):
        self._held = threading.local()

    def _mode(self):
        raise NotImplementedError

    def __enter__(self):
        if not hasattr(self._held, "stack"):
            self._held.stack = []
        self._held.stack.append(_C.set_grad_mode(self._mode()))
        return self

    def __exit__(self, *exc):
        _C.set_grad_mode(self._held.stack.pop())
        return False


class _BareSwitch(_Switch):
    """A switch without arguments, which also decorates without brackets: @no_grad."""

    def __new__(cls, function=None):
        made = super().__new__(cls)
        return made if function is None else cls()(function)


class no_grad(_BareSwitch):
    """with no_grad(): or @no_grad(): ops are not recorded."""

    def _mode(self):
        return False


class enable_grad(_BareSwitch):
    """with enable_grad(): ops are recorded again inside no_grad()."""

    def _mode(self):
        return True


class set_grad_enabled(_Switch):
    """set_grad_enabled(mode): ops are recorded if mode is true, from now on or, in with or as a decorator, within."""

    def __init__(self, mode):
        super().__init__()
        self._wanted = bool(mode)
        self._before = _C.set_grad_mode(self._wanted)

    def __enter__(self):
        super().__enter__()
        self._held.stack[-1] = self._before
        return self

    def __call__(self, function):
        _C.set_grad_mode(self._before)
        return super().__call__(function)

    def _recreate_cm(self):  # for each call of a decorated function
        return type(self)(self._wanted)

    def _mode(self):
        return self._wanted


class offload_saved(contextlib.ContextDecorator):
    """with offload_saved(least_bytes): what ops save for their backward waits in host memory."""

    def __init__(self, least_bytes=0):
        self._scope = _C.Offload(least_bytes)

    def __enter__(self):
        self._scope.enter()
        return self

    def __exit__(self, *exc):
        self._scope.leave()
        return False


class FunctionContext:
    """What forward and backward of a Function know of each other; it may be given attributes that are no tensors."""

    def __init__(self):
        self._saved = ()
        self._not_differentiable = ()
        self.needs_input_grad = ()

    def save_for_backward(self, *tensors):
        """Keeps tensors for the backward, where they are counted, offloaded and checked for changes."""
        self._saved = tensors

    def mark_non_differentiable(self, *tensors):
        """Results of forward that shall not require a gradient; backward is given zeros for them."""
        self._not_differentiable = tensors

    @property
    def saved_tensors(self):
        """What was saved, in that order."""
        return self._saved


class Function:
    """A function with its own backward.

    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return 3 * x * x * gradient

    y = Cube.apply(x)
    """

    @staticmethod
    def forward(ctx, *args):
        raise NotImplementedError("a Function needs a static forward(ctx, ...)")

    @staticmethod
    def backward(ctx, *gradients):
        raise NotImplementedError("a Function needs a static backward(ctx, ...)")

    @classmethod
    def apply(cls, *args):
        """forward(ctx, *args), recorded."""
        return _C.apply_function(cls.__name__, cls.forward, cls.backward, FunctionContext(), args)
