"""Gradients of many parameters at once."""
from .. import _C
from ..autograd import no_grad


def _with_gradients(parameters):
    parameters = [parameters] if isinstance(parameters, _C.Tensor) else list(parameters)
    return [p for p in parameters if p.grad is not None]


@no_grad()
def clip_grad_norm_(parameters, max_norm, norm_type=2.0):
    """Scales all gradients by one factor so that their norm together is at most max_norm; returns what it was."""
    with_gradients = _with_gradients(parameters)
    if not with_gradients:
        return _C.tensor(0.0)
    norm = _C.stack([p.grad.float().norm(norm_type) for p in with_gradients]).norm(norm_type)
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for p in with_gradients:
        p.grad.mul_(factor)
    return norm


@no_grad()
def clip_grad_value_(parameters, clip_value):
    """Clamps each element of the gradients to [-clip_value, clip_value]."""
    for p in _with_gradients(parameters):
        p.grad.clamp_(-clip_value, clip_value)
