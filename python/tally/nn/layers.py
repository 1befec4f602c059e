"""Layers: Linear, Embedding, norms, dropout, activations, losses. Initial values are PyTorch's."""
import math

from .. import _C
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter


def _empty(*size, device, dtype):
    return Parameter(_C.empty_parameter(*size, device=device, dtype=dtype))


class Identity(Module):
    """x itself."""

    def forward(self, x):
        return x


class Linear(Module):
    """x W^T + b: (..., in_features) -> (..., out_features); weight (out, in), values uniform within 1 / sqrt(in)."""

    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = _empty(out_features, in_features, device=device, dtype=dtype)
        bound = 1 / math.sqrt(in_features) if in_features > 0 else 0
        init.uniform_(self.weight, -bound, bound)
        if bias:
            self.bias = _empty(out_features, device=device, dtype=dtype)
            init.uniform_(self.bias, -bound, bound)
        else:
            self.register_parameter("bias", None)

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """Rows of a table (num_embeddings, embedding_dim) by id, values N(0, 1)."""

    def __init__(self, num_embeddings, embedding_dim, device=None, dtype=None):
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = _empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
        init.normal_(self.weight)

    def forward(self, ids):
        return F.embedding(ids, self.weight)

    def extra_repr(self):
        return f"{self.num_embeddings}, {self.embedding_dim}"


def _tuple(value, axes):
    return (value,) * axes if isinstance(value, int) else tuple(value)


class _Conv(Module):
    # Values as kaiming_uniform_(a=sqrt(5)): uniform within 1 / sqrt(fan in), the bias too.
    def __init__(self, axes, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, device,
                 dtype):
        super().__init__()
        name = type(self).__name__
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(f"{name}: {groups} groups do not divide {in_channels} channels in and {out_channels} out")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = _tuple(kernel_size, axes), _tuple(stride, axes)
        self.dilation = _tuple(dilation, axes)
        if isinstance(padding, str):
            if padding not in ("valid", "same"):
                raise ValueError(f"{name}: padding is a number, 'valid' or 'same', not '{padding}'")
            if padding == "same" and self.stride != (1,) * axes:
                raise ValueError(f"{name}: padding 'same' takes a stride of 1")
        self.padding = padding if isinstance(padding, str) else _tuple(padding, axes)
        self.weight = _empty(out_channels, in_channels // groups, *self.kernel_size, device=device, dtype=dtype)
        fan_in = in_channels // groups * math.prod(self.kernel_size)
        bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
        init.uniform_(self.weight, -bound, bound)
        if bias:
            self.bias = _empty(out_channels, device=device, dtype=dtype)
            init.uniform_(self.bias, -bound, bound)
        else:
            self.register_parameter("bias", None)

    def _padded(self, x):
        """x and the padding that is left to the convolution."""
        if self.padding == "valid":
            return x, (0,) * len(self.kernel_size)
        if self.padding != "same":
            return x, self.padding
        sides = []
        for k, d in zip(reversed(self.kernel_size), reversed(self.dilation)):
            sides += [d * (k - 1) // 2, d * (k - 1) - d * (k - 1) // 2]
        return F.pad(x, sides), (0,) * len(self.kernel_size)

    def extra_repr(self):
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        for name, usual in (("padding", (0,)), ("dilation", (1,))):
            value = getattr(self, name)
            if value != usual * len(self.kernel_size):
                text += f", {name}={value!r}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        return text + (", bias=False" if self.bias is None else "")


class Conv1d(_Conv):
    """(N, C, L) -> (N, O, L'); weight (out, in / groups, kernel)."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True,
                 device=None, dtype=None):
        super().__init__(1, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, device,
                         dtype)

    def forward(self, x):
        x, padding = self._padded(x)
        return F.conv1d(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(_Conv):
    """(N, C, H, W) -> (N, O, H', W'); weight (out, in / groups, kh, kw)."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True,
                 device=None, dtype=None):
        super().__init__(2, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, device,
                         dtype)

    def forward(self, x):
        x, padding = self._padded(x)
        return F.conv2d(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class LayerNorm(Module):
    """(x - mean) / sqrt(variance + eps) over the last axis, times weight, plus bias."""

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        for name, there, value in (("weight", elementwise_affine, 1.0), ("bias", elementwise_affine and bias, 0.0)):
            self.register_parameter(name, _empty(*self.normalized_shape, device=device, dtype=dtype) if there else None)
            if there:
                init.constant_(getattr(self, name), value)

    def forward(self, x):
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}"


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) over the last axis, times weight."""

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.register_parameter(
            "weight", _empty(*self.normalized_shape, device=device, dtype=dtype) if elementwise_affine else None)
        if elementwise_affine:
            init.constant_(self.weight, 1.0)

    def forward(self, x):
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}"


class Dropout(Module):
    """In training each element is 0 with probability p and the others are divided by 1 - p."""

    def __init__(self, p=0.5):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"Dropout: p is {p}; it is in [0, 1]")
        self.p = p

    def forward(self, x):
        return F.dropout(x, self.p, self.training)

    def extra_repr(self):
        return f"p={self.p}"


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x):
        return F.relu(x)


class GELU(Module):
    """Gaussian error linear unit."""

    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, x):
        return F.gelu(x, self.approximate)


class SiLU(Module):
    """x sigmoid(x)."""

    def forward(self, x):
        return F.silu(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x):
        return F.sigmoid(x)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x):
        return F.tanh(x)


class MSELoss(Module):
    """The mean of squared differences."""

    def __init__(self, reduction="mean"):
        super().__init__()
        self.reduction = reduction

    def forward(self, input, target):
        return F.mse_loss(input, target, reduction=self.reduction)


class CrossEntropyLoss(Module):
    """-log softmax(input)[target]."""

    def __init__(self, ignore_index=-100, reduction="mean"):
        super().__init__()
        self.ignore_index, self.reduction = ignore_index, reduction

    def forward(self, input, target):
        return F.cross_entropy(input, target, ignore_index=self.ignore_index, reduction=self.reduction)
