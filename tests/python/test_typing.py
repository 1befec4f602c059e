"""Shape annotations that are checked at calls."""
import pytest
import tally
from tally.typing import Any, Bool, Float, Int, ShapeError, shapes


def test_names_bind_across_arguments_and_result():
    @shapes
    def f(x: Float["batch seq d"], w: Float["d out"], ids: Int["batch seq"]) -> Float["batch seq out"]:
        return x @ w

    f(tally.ones(2, 3, 4), tally.ones(4, 5), tally.zeros(2, 3, dtype=tally.int64))
    with pytest.raises(ShapeError, match="f: w: .*d is 4, here it is 5"):
        f(tally.ones(2, 3, 4), tally.ones(5, 5), tally.zeros(2, 3, dtype=tally.int64))
    with pytest.raises(ShapeError, match="dtype"):
        f(tally.ones(2, 3, 4), tally.ones(4, 5), tally.ones(2, 3))
    with pytest.raises(ShapeError, match="list"):
        f([1], tally.ones(4, 5), tally.ones(2, 3))


def test_result_is_checked():
    @shapes
    def f(x: Float["a b"]) -> Float["b a"]:
        return x

    with pytest.raises(ShapeError, match="result"):
        f(tally.ones(2, 3))


def test_patterns():
    @shapes
    def f(x: Float["*batch 3 _"], y: Any["... a"] = None, m: Bool["a"] = None) -> tuple[Float["*batch 3 _"], Any["..."]]:
        return x, tally.ones(1)

    f(tally.ones(5, 6, 3, 7), tally.ones(2, 4), tally.zeros(4, dtype=tally.bool))
    f(tally.ones(3, 7))
    with pytest.raises(ShapeError):
        f(tally.ones(4, 7))
    with pytest.raises(ShapeError):
        f(tally.ones(3))
    with pytest.raises(ValueError):
        Float["... ..."]
    with pytest.raises(ValueError):
        Float["a+b"]


def test_annotations_alone_change_nothing():
    def f(x: Float["a b c"]):
        return x

    assert f(tally.ones(2)).shape == (2,)


def test_strings_as_annotations():
    scope = {}
    exec("from __future__ import annotations\nfrom tally.typing import Float, shapes\n@shapes\n"
         "def f(x: Float['a a']): return x\n", scope)
    scope["f"](tally.ones(2, 2))
    with pytest.raises(ShapeError):
        scope["f"](tally.ones(2, 3))
