"""Modules: layers with parameters, written in Python on Tally's ops, with PyTorch's names."""
from . import functional, init, utils  # noqa: F401
from .containers import ModuleDict, ModuleList, ParameterList, Sequential  # noqa: F401
from .layers import (  # noqa: F401
    Conv1d, Conv2d, CrossEntropyLoss, Dropout, Embedding, GELU, Identity, LayerNorm, Linear, MSELoss, ReLU, RMSNorm,
    Sigmoid, SiLU, Tanh)
from .module import Module  # noqa: F401
from .parameter import Parameter  # noqa: F401
