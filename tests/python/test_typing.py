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


def test_dataclasses():
    import dataclasses
    import typing

    @shapes
    @dataclasses.dataclass
    class Batch:
        ids: Int["batch seq"]
        logits: Float["batch seq vocab"]
        mask: typing.Optional[Bool["batch seq"]] = None
        name: str = "x"

    b = Batch(tally.zeros(2, 3, dtype=tally.int64), tally.ones(2, 3, 5))
    assert b.ids.shape == (2, 3) and dataclasses.replace(b, name="y").name == "y"
    with pytest.raises(ShapeError, match=r"Batch: logits: shape \(2, 4, 5\).*seq is 3, here it is 4"):
        Batch(tally.zeros(2, 3, dtype=tally.int64), tally.ones(2, 4, 5))
    with pytest.raises(ShapeError, match="Batch: mask"):
        Batch(b.ids, b.logits, tally.ones(2, 3))
    Batch(b.ids, b.logits, None), Batch(b.ids, b.logits, tally.ones(2, 3) > 0)


def test_optional_lists_and_dicts():
    import typing

    @shapes
    def f(x: Float["a b"], y: Float["b a"] | None = None, z: typing.Optional[Float["a"]] = tally.ones(2),
          many: list[Float["a _"]] = (), by_name: dict[str, Float["b"]] = None, *rest: Float["a"], **more: Float["b"]
          ) -> tuple[Float["a b"], ...]:
        return (x, x)

    x = tally.ones(2, 3)
    f(x), f(x, None, None), f(x, x.T), f(x, many=[x, x]), f(x, by_name={"k": tally.ones(3)}), f(x, k=tally.ones(3))
    f(x, None, None, (), {}, tally.ones(2), tally.ones(2))
    for wrong, words in ((lambda: f(x, x), "f: y"), (lambda: f(x, many=[x, x.T]), r"many\[1\]"),
                         (lambda: f(x, by_name={"k": tally.ones(2)}), r"by_name\['k'\]"), (lambda: f(x, k=tally.ones(4)), r"more\['k'\]"),
                         (lambda: f(x, None, None, (), {}, tally.ones(2), tally.ones(4)), r"rest\[1\]")):
        with pytest.raises(ShapeError, match=words):
            wrong()


def test_methods_and_names_of_enclosing_functions():
    class Net(tally.nn.Module):
        @shapes
        def forward(self, x: Float["batch d"], other: "NoSuchName" = None) -> Float["batch"]:  # noqa: F821
            return x.sum(-1)

    assert Net()(tally.ones(2, 3)).shape == (2,)
    with pytest.raises(ShapeError, match="Net.forward: x: .*2 axes, here 1"):
        Net()(tally.ones(2))
