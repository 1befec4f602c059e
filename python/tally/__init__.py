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


def generate(model, prompt="", max_tokens=200, **options):
    """Text that follows the prompt, of a LanguageModel or of the folder of a run; options are those of
    LanguageModel.generate: temperature, top_k, top_p, min_p, repetition_penalty, seed, stop."""
    if not isinstance(model, LanguageModel):  # noqa: F405
        model = LanguageModel.load(model)  # noqa: F405
    return model.generate(prompt, max_tokens, **options)


def multinomial(input, num_samples, replacement=False):
    """Places drawn with the probabilities input (.., n), which need not sum to 1: (.., num_samples) int64. Each draw is
    the largest of p / e with e exponential (Efraimidis and Spirakis 2006)."""
    if input.ndim not in (1, 2):
        raise RuntimeError(f"multinomial: probabilities are a vector or a matrix, not of shape {tuple(input.shape)}")
    if not input.is_floating_point():
        raise RuntimeError(f"multinomial: probabilities are floats, not {input.dtype}")
    p = input.detach().float()
    if not (p >= 0).all() or p.isinf().any() or (p.sum(-1) <= 0).any():
        raise RuntimeError("multinomial: probabilities must be finite, at least 0 and somewhere above it")
    if num_samples < 1 or (not replacement and num_samples > input.shape[-1]):
        raise RuntimeError(f"multinomial: {num_samples} draws of {input.shape[-1]}; without replacement at most as many")
    if not replacement and ((p > 0).sum(-1) < num_samples).any():
        raise RuntimeError(f"multinomial: {num_samples} draws without replacement, of which fewer have a probability above 0")

    def noise(*size):
        return -(1 - rand(*size, device=p.device)).clamp(min=1e-38).log()  # noqa: F405

    if not replacement:
        return (p / noise(*p.shape).clamp(min=1e-30)).topk(num_samples, -1).indices
    many = p.unsqueeze(-2).expand(*p.shape[:-1], num_samples, p.shape[-1])
    return (many / noise(*many.shape).clamp(min=1e-30)).argmax(-1)


def is_floating_point(input):
    """Whether a tensor's dtype is of floats."""
    return input.is_floating_point()


def numel(input):
    """The number of a tensor's elements."""
    return input.numel()
