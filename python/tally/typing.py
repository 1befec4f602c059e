"""Shapes in annotations, checked when a function is called.

    @shapes
    def attend(q: Float["batch heads time d"], k: Float["batch heads keys d"]) -> Float["batch heads time keys"]:
        return q @ k.transpose(-2, -1)

A name stands for one size, the same in all arguments and the result of one call; a number for that size; `_` for any
size; `...` for any number of axes; `*name` for any number of axes, the same in all of them. Float, Int, Bool and Any say
what the numbers are. Float[Tensor, "..."], as jaxtyping writes it, means the same and is what type checkers understand.
Optional[...], `... | None`, lists, tuples and dicts of annotations are checked too. On a dataclass @shapes checks the
fields when an object is made:

    @shapes
    @dataclass
    class Batch:
        ids: Int["batch seq"]
        targets: Int["batch seq"]

Without @shapes annotations change nothing.
"""
import functools
import inspect
import sys
import types
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

    def __eq__(self, other):
        return isinstance(other, Annotation) and repr(self) == repr(other)

    def __hash__(self):
        return hash(repr(self))

    def __or__(self, other):  # Float["a b"] | None
        return _typing.Union[self, other]

    def __ror__(self, other):
        return _typing.Union[other, self]

    def __call__(self, *args):  # typing takes what can be called for a type
        raise TypeError(f"{self} is an annotation; it makes no tensors")

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
    """Float, Int, Bool or Any: a pattern in brackets makes an annotation."""

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


if _typing.TYPE_CHECKING:  # Float[Tensor, "a b"] is a Tensor
    from typing import Annotated as Any, Annotated as Bool, Annotated as Float, Annotated as Int
else:
    Float, Int, Bool, Any = _Kind("Float"), _Kind("Int"), _Kind("Bool"), _Kind("Any")


def _has_annotation(a):
    return isinstance(a, Annotation) or any(_has_annotation(p) for p in _typing.get_args(a)) or (
        isinstance(a, tuple) and any(_has_annotation(p) for p in a))


def _check(annotation, value, bound, what):
    if isinstance(annotation, Annotation):
        return annotation.check(value, bound, what)
    if not _has_annotation(annotation):
        return
    origin, parts = _typing.get_origin(annotation), _typing.get_args(annotation)
    if isinstance(annotation, tuple):
        origin, parts = tuple, annotation
    if origin is tuple and not (len(parts) == 2 and parts[1] is ...):
        if not isinstance(value, tuple) or len(value) != len(parts):
            raise ShapeError(f"{what}: a tuple of {len(parts)} is expected")
        for i, (p, v) in enumerate(zip(parts, value)):
            _check(p, v, bound, f"{what}[{i}]")
    elif origin in _UNIONS:
        _check_union(parts, value, bound, what)
    elif origin is dict:
        for k, v in value.items() if isinstance(value, dict) else ():
            _check(parts[1], v, bound, f"{what}[{k!r}]")
    elif isinstance(value, (list, tuple)):
        for i, v in enumerate(value):
            _check(parts[0], v, bound, f"{what}[{i}]")


_UNIONS = {_typing.Union, getattr(types, "UnionType", _typing.Union)}


def _check_union(parts, value, bound, what):
    """One of the parts must fit; names are bound by the first that does."""
    errors = []
    for p in parts:
        if not _has_annotation(p):
            if (p is type(None) and value is None) or (isinstance(p, type) and isinstance(value, p)):
                return
            continue
        tried = dict(bound)
        try:
            _check(p, value, tried, what)
        except ShapeError as e:
            errors.append(e)
        else:
            bound.update(tried)
            return
    raise errors[0]


_F = _typing.TypeVar("_F", bound=_typing.Callable)


def shapes(function: _F) -> _F:
    """Decorator: checks Float[...], Int[...], Bool[...] and Any[...] annotations at every call; of a dataclass, or of
    another class whose __init__ has them, when an object is made."""
    if inspect.isclass(function):
        function.__init__ = _checked(function.__init__, function.__qualname__, vars(sys.modules[function.__module__]))
        return function
    return _checked(function, function.__qualname__, getattr(function, "__globals__", {}))


def _checked(function, called, scope):
    signature = inspect.signature(function)
    hints = {}

    def resolve():
        for name, p in [*signature.parameters.items(), ("return", None)]:
            a = signature.return_annotation if p is None else p.annotation
            if isinstance(a, str):  # from __future__ import annotations
                try:
                    a = eval(a, scope)
                except NameError:  # a name of an enclosing function
                    a = inspect.Parameter.empty
            hints[name] = a

    @functools.wraps(function)
    def checked(*args, **kwargs):
        if not hints:
            resolve()
        bound, given = {}, signature.bind(*args, **kwargs)
        given.apply_defaults()
        for name, value in given.arguments.items():
            p = signature.parameters[name]
            if value is None and p.default is None:
                continue
            if p.kind is p.VAR_POSITIONAL or p.kind is p.VAR_KEYWORD:
                for key, v in enumerate(value) if p.kind is p.VAR_POSITIONAL else value.items():
                    _check(hints[name], v, bound, f"{called}: {name}[{key!r}]")
                continue
            _check(hints[name], value, bound, f"{called}: {name}")
        result = function(*args, **kwargs)
        _check(hints["return"], result, bound, f"{called}: result")
        return result

    return checked
