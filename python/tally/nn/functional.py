"""Functions of layers: tally.nn.functional. Names and arguments are PyTorch's."""
from .. import _C
from .._C import (  # noqa: F401
    relu, sigmoid, softmax, tanh)


def dropout(input, p=0.5, training=True):
    """With probability p each element is 0, the others are divided by 1 - p; itself when not training."""
    return _C.dropout(input, p) if training and p > 0 else input
