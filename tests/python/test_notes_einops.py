"""The notes' assertions on einops and shape annotations: one test an A-line."""
import pytest
import tally
from tally.einops import einsum, rearrange, reduce
from tally.typing import Float, shapes
from tally import Tensor


def test_A116_annotations():
    x: Float[Tensor, "batch seq heads hidden"] = tally.ones(2, 2, 1, 3)

    @shapes
    def f(x: Float["batch seq heads hidden"]) -> Float["batch seq heads hidden"]:
        return x

    assert f(x).shape == (2, 2, 1, 3)
    with pytest.raises(TypeError, match="seq"):
        f(tally.ones(2, 3))


def test_A117_einsum():
    x = tally.ones(2, 3, 4)
    z = einsum(x, x, "batch seq1 hidden, batch seq2 hidden -> batch seq1 seq2")
    assert z.shape == (2, 3, 3) and (z == 4).all() and tally.equal(z, x @ x.transpose(-2, -1))


def test_A118_einsum_with_an_ellipsis():
    x = tally.randn(2, 3, 4)
    z = einsum(x, x, "... seq1 hidden, ... seq2 hidden -> ... seq1 seq2")
    assert tally.allclose(z, x @ x.transpose(-2, -1), atol=1e-6)


def test_A119_names_that_are_absent_are_summed():
    x = tally.randn(3, 4)
    assert tally.allclose(einsum(x, "a b -> a"), x.sum(dim=1), atol=1e-6)


@pytest.mark.parametrize("how", ["sum", "mean", "max", "min"])
def test_A120_reductions(how):
    x = tally.randn(2, 3, 4)
    y = reduce(x, "a b c -> a b", how)
    whole = getattr(x, how)(2)
    assert tally.allclose(y, whole[0] if isinstance(whole, tuple) else whole)


def test_A121_reduce_sum():
    y = reduce(tally.ones(2, 3, 4), "... hidden -> ...", "sum")
    assert y.shape == (2, 3) and (y == 4).all()


def test_A122_mean():
    y = tally.ones(2, 3, 4).mean(dim=-1)
    assert y.shape == (2, 3) and (y == 1).all()


def test_A123_slip_sum_is_not_mean():
    x = tally.ones(2, 3, 4)
    assert tally.equal(reduce(x, "... hidden -> ...", "sum"), x.sum(dim=-1))
    assert tally.equal(reduce(x, "... hidden -> ...", "mean"), x.mean(dim=-1))


def test_A124_slip_the_space_is_needed():
    with pytest.raises(ValueError):
        reduce(tally.ones(2, 3, 4), "...hidden -> ...", "sum")


def test_A125_heads():
    x = tally.randn(2, 3, 8)
    y = rearrange(x, "... (heads hidden1) -> ... heads hidden1", heads=2)
    assert y.shape == (2, 3, 2, 4) and y[1, 2, 1, 3] == x[1, 2, 4 * 1 + 3]


def test_A126_a_grouped_axis_needs_a_size():
    with pytest.raises(ValueError):
        rearrange(tally.ones(2, 3, 8), "... (heads hidden1) -> ... heads hidden1")


def test_A127_einsum_with_a_matrix():
    z = einsum(tally.ones(2, 3, 2, 4), tally.ones(4, 4), "... hidden1, hidden1 hidden2 -> ... hidden2")
    assert z.shape == (2, 3, 2, 4) and (z == 4).all()


def test_A128_heads_and_back():
    x = tally.randn(2, 3, 8)
    y = rearrange(x, "... (heads hidden1) -> ... heads hidden1", heads=2)
    assert tally.equal(rearrange(y, "... heads hidden2 -> ... (heads hidden2)"), x)
