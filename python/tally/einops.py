"""einops on Tally's tensors: rearrange, reduce, repeat, einsum, pack, unpack (after einops 0.8)."""
from ._C import (  # noqa: F401
    einops_pack as pack, einops_reduce as reduce, einops_repeat as repeat, einops_unpack as unpack, einsum, rearrange)
