"""Parameter: a tensor that a module lists and an optimizer changes."""
from .. import _C
from .._C import Tensor


class Parameter(Tensor):
    """A tensor with the values of data that requires a gradient; a module to which it is given lists it. Its memory is
    accounted as a parameter's: data itself where it is that already, else a copy."""

    def __init__(self, data, requires_grad=True):
        super().__init__(_C.as_parameter(data))
        if requires_grad:
            self.requires_grad_()

    def __repr__(self):
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo):
        copy = type(self)(self.detach().clone(), self.requires_grad)
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol):
        return type(self), (self.detach().clone(), self.requires_grad)
