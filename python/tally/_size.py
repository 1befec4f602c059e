"""Size: the shape of a tensor, a tuple of ints; and what ops with two results return."""
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

    def __reduce__(self):
        return Size, (tuple(self),)
