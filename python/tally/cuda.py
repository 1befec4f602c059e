"""Cards: tally.cuda.is_available(), device_count(), get_device_properties(i), memory_allocated(), synchronize(), Event."""
from . import _C
from ._C import Event  # noqa: F401


def device_count():
    """The number of cards that can be used; 0 without a driver or in a build without CUDA."""
    return _C.cuda_device_count()


def is_available():
    """Whether there is a card."""
    return device_count() > 0


def _name(device):
    if device is None:
        return "cuda:0"
    if isinstance(device, int):
        return f"cuda:{device}"
    return device


def get_device_properties(device=None):
    """What a card is: .name, .total_memory, .multi_processor_count ... RuntimeError where there is none."""
    return _C.get_device_properties(_name(device))


def get_device_name(device=None):
    """The card's name."""
    return get_device_properties(device).name


def memory_allocated(device=None):
    """Bytes of tensors on a card (blocks are multiples of 256 bytes); 0 where there is no card."""
    return _C.memory_allocated(_name(device)) if is_available() else 0


def max_memory_allocated(device=None):
    """The most that memory_allocated() was since reset_peak_memory_stats()."""
    return _C.max_memory_allocated(_name(device)) if is_available() else 0


def reset_peak_memory_stats(device=None):
    """Starts a new peak at what is allocated now."""
    if is_available():
        _C.reset_peak_memory_stats(_name(device))


def empty_cache():
    """Gives free blocks of every card back to it."""
    for i in range(device_count()):
        _C.empty_cache(f"cuda:{i}")


def synchronize(device=None):
    """Waits until a card has done all it was given."""
    if is_available():
        _C.synchronize(_name(device))
