"""Functions of layers: tally.nn.functional. Names and arguments are PyTorch's."""
from .. import _C
from .._C import (  # noqa: F401
    binary_cross_entropy_with_logits, conv1d, conv2d, cross_entropy, kl_div, layer_norm, linear, log_softmax, mse_loss,
    nll_loss, one_hot, relu, rms_norm, scaled_dot_product_attention, sigmoid, silu, softmax, swiglu, tanh)


def embedding(input, weight):
    """Rows of weight (V, d) by ids (..) -> (.., d). IndexError for an id outside."""
    return _C.embedding(input, weight)


def gelu(input, approximate="none"):
    """x times the normal distribution's share below x; approximate="tanh" is GPT-2's formula."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate is {approximate!r}; it is 'none' or 'tanh'")
    return _C.gelu_tanh(input) if approximate == "tanh" else _C.gelu_erf(input)


def dropout(input, p=0.5, training=True):
    """With probability p each element is 0, the others are divided by 1 - p; itself when not training."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: p is {p}; it is in [0, 1]")
    return _C.dropout(input, p) if training and p > 0 else input


def pad(input, pad, mode="constant", value=0.0):
    """By two amounts an axis, (before, after), of the last axis first."""
    return _C.pad(input, list(pad), mode, value)


def normalize(input, p=2.0, dim=1, eps=1e-12):
    """x / max(norm(x), eps) along dim."""
    return input / _C.norm(input, p, dim, True).clamp(min=eps)
