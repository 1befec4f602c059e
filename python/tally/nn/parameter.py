"""Parameter: a tensor that a module lists and an optimizer changes."""
from .._C import Tensor


class Parameter(Tensor):
    """A tensor over the same storage as data, that requires a gradient; a module to which it is given lists it."""

    def __init__(self, data, requires_grad=True):
        super().__init__(data)
        if requires_grad:
            self.requires_grad_()

    def __repr__(self):
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo):
        copy = type(self)(self.detach().clone(), self.requires_grad)
        memo[id(self)] = copy
        return copy

    def __reduce__(self):
        return type(self), (self.detach().clone(), self.requires_grad)
