"""Tally: tensors with gradients, einops, tokenizers, language models, training and text, in C++ and CUDA, with PyTorch's
names and with every byte and floating-point operation accounted for.

    import tally
    x = tally.tensor([[1., 2, 3], [4, 5, 6]], requires_grad=True)
    (x @ x.T).sum().backward()
    x.grad
"""
import math

from . import _C
from ._C import *  # noqa: F401,F403  tensors, dtypes, ops, tokenizers, training
from ._C import device, dtype  # noqa: F401
from ._size import Size  # noqa: F401
from .autograd import enable_grad, no_grad, set_grad_enabled  # noqa: F401
from .storage import load, save  # noqa: F401
from . import autograd, cuda, einops, nn, optim, storage, typing  # noqa: F401

__version__ = "0.1.0"
inf, nan, pi, e, newaxis = math.inf, math.nan, math.pi, math.e, None


def is_tensor(x):
    """Whether x is a Tensor."""
    return isinstance(x, Tensor)  # noqa: F405


def is_floating_point(input):
    """Whether a tensor's dtype is of floats."""
    return input.is_floating_point()


def numel(input):
    """The number of a tensor's elements."""
    return input.numel()
