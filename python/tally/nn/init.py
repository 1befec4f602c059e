"""Initial values, in place and unrecorded: tally.nn.init, with PyTorch's names."""
import math

from .. import _C
from ..autograd import no_grad


def uniform_(tensor, a=0.0, b=1.0):
    """Uniform in [a, b)."""
    _C.init_uniform_(tensor, a, b)
    return tensor


def normal_(tensor, mean=0.0, std=1.0):
    """N(mean, std^2)."""
    _C.init_normal_(tensor, mean, std)
    return tensor


def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0):
    """N(mean, std^2) of what lies in [a, b]; a and b are values, not multiples of std."""
    _C.init_trunc_normal_(tensor, mean, std, a, b)
    return tensor


@no_grad()
def constant_(tensor, val):
    """All of one value."""
    return tensor.fill_(val)


def ones_(tensor):
    """All 1."""
    return constant_(tensor, 1.0)


def zeros_(tensor):
    """All 0."""
    return constant_(tensor, 0.0)


def _fans(tensor):
    if tensor.ndim < 2:
        raise ValueError(f"init: a tensor of shape {tuple(tensor.shape)} has no inputs and outputs; two axes are needed")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def calculate_gain(nonlinearity, param=None):
    """By what an activation shrinks a spread: linear 1, sigmoid 1, tanh 5/3, relu sqrt(2), leaky_relu, selu 3/4."""
    if nonlinearity in ("linear", "sigmoid", "conv1d", "conv2d"):
        return 1.0
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    gains = {"tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4}
    if nonlinearity not in gains:
        raise ValueError(f"calculate_gain: unknown nonlinearity {nonlinearity!r}")
    return gains[nonlinearity]


def xavier_uniform_(tensor, gain=1.0):
    """Uniform with std gain * sqrt(2 / (in + out)) (Glorot and Bengio 2010)."""
    bound = math.sqrt(3.0) * gain * math.sqrt(2.0 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor, gain=1.0):
    """Normal with std gain * sqrt(2 / (in + out))."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_fans(tensor))))


def _kaiming_std(tensor, a, mode, nonlinearity):
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"init: mode is {mode!r}; it is fan_in or fan_out")
    fan = _fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu"):
    """Uniform with std gain / sqrt(fan) (He et al. 2015)."""
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu"):
    """Normal with std gain / sqrt(fan)."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity))
