"""Shapes in annotations, checked when a function is called.

    @shapes
    def attend(q: Float["batch heads time d"], k: Float["batch heads keys d"]) -> Float["batch heads time keys"]:
        return q @ k.transpose(-2, -1)

A name stands for one size, the same in all arguments and the result of one call; a number for that size; `_` for any
size; `...` for any number of axes; `*name` for any number of axes, the same in all of them. Float, Int, Bool and Any say
what the numbers are. Float[Tensor, "..."], as jaxtyping writes it, means the same. Without @shapes annotations change
nothing.
"""
import functools
import inspect
import typing as _typing

from ._C import Tensor


class ShapeError(TypeError, ValueError):
    """A tensor whose shape or kind of numbers is not the annotated one."""


class Annotation:
    """One annotation: kind of numbers and pattern of sizes."""

    def __init__(self, kind, pattern):
        self.kind, self.pattern = kind, pattern
        self.axes = pattern.split()
        many = [a for a in self.axes if a == "..." or a.startswith("*")]
        if len(many) > 1:
            raise ValueError(f"{self}: only one of ... and *name can stand in a pattern")
        for a in self.axes:
            name = a[1:] if a.startswith("*") else a
            if a != "..." and not name.isdigit() and not name.isidentifier():
                raise ValueError(f"{self}: '{a}' is no name, number, _, ... or *name")
        self.many = self.axes.index(many[0]) if many else None

    def __repr__(self):
        return f'{self.kind}["{self.pattern}"]'

    def check(self, x, bound, what):
        """Raises ShapeError unless x fits; sizes of names go into bound."""
        if not isinstance(x, Tensor):
            raise ShapeError(f"{what}: a {type(x).__name__} where {self} is expected")
        if not _KINDS[self.kind](x):
            raise ShapeError(f"{what}: dtype {x.dtype} where {self} is expected")
        shape = tuple(x.shape)
        axes = self._pairs(shape, what)
        for axis, size in axes:
            if axis in ("_", "..."):
                continue
            if axis.isdigit():
                fits = int(axis) == size
            else:
                fits = bound.setdefault(axis, size) == size
            if not fits:
                expected = f"{axis} is {bound[axis]}" if axis in bound else f"{axis} is expected"
                raise ShapeError(f"{what}: shape {shape} where {self} is expected: {expected}, here it is {size}")

    def _pairs(self, shape, what):
        n = len(self.axes)
        if self.many is None:
            if len(shape) != n:
                raise ShapeError(f"{what}: shape {shape} where {self} is expected: {n} axes, here {len(shape)}")
            return zip(self.axes, shape)
        extra = len(shape) - (n - 1)
        if extra < 0:
            raise ShapeError(f"{what}: shape {shape} where {self} is expected: at least {n - 1} axes")
        before, after = self.axes[: self.many], self.axes[self.many + 1 :]
        middle = (self.axes[self.many], shape[self.many : self.many + extra])
        return [*zip(before, shape), middle, *zip(after, shape[self.many + extra :])]


_KINDS = {
    "Float": lambda x: x.dtype.is_floating_point,
    "Int": lambda x: not x.dtype.is_floating_point and x.dtype.short_name != "bool",
    "Bool": lambda x: x.dtype.short_name == "bool",
    "Any": lambda x: True,
}


class _Kind:
    def __init__(self, kind):
        self._kind = kind

    def __getitem__(self, pattern):
        if isinstance(pattern, tuple) and len(pattern) == 2:
            pattern = pattern[1]
        if not isinstance(pattern, str):
            raise TypeError(f"{self._kind}[...] takes a string of axes, not {pattern!r}")
        return Annotation(self._kind, pattern)

    def __repr__(self):
        return self._kind


Float, Int, Bool, Any = _Kind("Float"), _Kind("Int"), _Kind("Bool"), _Kind("Any")


def _check(annotation, value, bound, what):
    if isinstance(annotation, Annotation):
        annotation.check(value, bound, what)
    elif isinstance(annotation, tuple) or _typing.get_origin(annotation) is tuple:
        parts = annotation if isinstance(annotation, tuple) else _typing.get_args(annotation)
        if not any(isinstance(p, Annotation) for p in parts):
            return
        if not isinstance(value, tuple) or len(value) != len(parts):
            raise ShapeError(f"{what}: a tuple of {len(parts)} is expected")
        for i, (p, v) in enumerate(zip(parts, value)):
            _check(p, v, bound, f"{what}[{i}]")


def shapes(function):
    """Decorator: checks Float[...], Int[...], Bool[...] and Any[...] annotations at every call."""
    signature = inspect.signature(function)
    hints = {}

    def resolve():
        scope = getattr(function, "__globals__", {})
        for name, p in [*signature.parameters.items(), ("return", None)]:
            a = signature.return_annotation if p is None else p.annotation
            hints[name] = eval(a, scope) if isinstance(a, str) else a  # from __future__ import annotations

    @functools.wraps(function)
    def checked(*args, **kwargs):
        if not hints:
            resolve()
        bound, given = {}, signature.bind(*args, **kwargs)
        given.apply_defaults()
        for name, value in given.arguments.items():
            if value is None and signature.parameters[name].default is None:
                continue
            _check(hints[name], value, bound, f"{function.__qualname__}: {name}")
        result = function(*args, **kwargs)
        _check(hints["return"], result, bound, f"{function.__qualname__}: result")
        return result

    return checked
