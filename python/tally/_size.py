"""Size: the shape of a tensor, a tuple of ints; what ops with two results return; and what pickles call."""
import collections
import math

ValuesIndices = collections.namedtuple("ValuesIndices", ["values", "indices"])


class Size(tuple):
    """Sizes of a tensor's axes. Equal to a tuple of the same numbers."""

    __slots__ = ()

    def numel(self):
        """The number of elements of a tensor of this size."""
        return math.prod(self)

    def __repr__(self):
        return f"tally.Size({list(self)})"

    def __getitem__(self, i):
        part = tuple.__getitem__(self, i)
        return Size(part) if isinstance(i, slice) else part

    def __add__(self, other):
        return Size(tuple(self) + tuple(other))

    def __radd__(self, other):
        return Size(tuple(other) + tuple(self))

    def __mul__(self, times):
        return Size(tuple(self) * times)

    __rmul__ = __mul__

    def __reduce__(self):
        return Size, (tuple(self),)


def dtype_by_name(name):
    """tally.float32 of "float32"."""
    from . import _C
    return getattr(_C, name)


def tensor_from_bytes(values, dtype, size, requires_grad):
    """The tensor of a pickle."""
    from . import _C
    return _C.tensor_from_bytes(values, dtype, size, requires_grad)
