"""Whether gradients are recorded, and functions with a backward of their own."""
import contextlib
import threading

from . import _C
from ._C import is_grad_enabled  # noqa: F401


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


class no_grad(_Switch):
    """with no_grad(): or @no_grad(): ops are not recorded."""

    def _mode(self):
        return False


class enable_grad(_Switch):
    """with enable_grad(): ops are recorded again inside no_grad()."""

    def _mode(self):
        return True


class set_grad_enabled(_Switch):
    """with set_grad_enabled(mode): ops are recorded if mode is true."""

    def __init__(self, mode):
        super().__init__()
        self._wanted = bool(mode)

    def _mode(self):
        return self._wanted
