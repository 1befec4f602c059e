"""Wrong use raises what PyTorch's users expect, in one line that says what and where."""
import pytest
import tally
from tally import nn


@pytest.mark.parametrize("call,error,words", [
    (lambda: tally.ones(2, 3) @ tally.ones(2, 3), RuntimeError, "2, 3"),
    (lambda: tally.ones(2) + tally.ones(3), RuntimeError, "2"),
    (lambda: tally.ones(2, 3).T.view(6), RuntimeError, "view size is not compatible"),
    (lambda: tally.ones(2, 3)[2], IndexError, "2"),
    (lambda: tally.ones(2, 3)[0, 0, 0], IndexError, ""),
    (lambda: tally.ones(2, 3).sum(dim=2), IndexError, "2"),
    (lambda: tally.ones(2, 3).transpose(0, 5), IndexError, "5"),
    (lambda: tally.tensor([[1, 2], [3]]), ValueError, "unequal"),
    (lambda: tally.tensor("text"), TypeError, "no number"),
    (lambda: tally.tensor([300], dtype=tally.uint8), RuntimeError, "300"),
    (lambda: tally.zeros(2, device="nowhere"), RuntimeError, "nowhere"),
    (lambda: tally.zeros(-1), RuntimeError, "negative"),
    (lambda: tally.zeros(*[1] * 20), ValueError, "axes"),
    (lambda: tally.zeros("2"), TypeError, ""),
    (lambda: tally.ones(2).backward(), RuntimeError, "gradient"),
    (lambda: tally.ones(2, requires_grad=True).backward(), RuntimeError, "gradient"),
    (lambda: tally.ones(2).to(tally.int64).requires_grad_(), RuntimeError, "gradient"),
    (lambda: bool(tally.ones(2)), RuntimeError, "ambiguous"),
    (lambda: tally.ones(2).item(), RuntimeError, "2 elements"),
    (lambda: len(tally.tensor(1.)), TypeError, "no axes"),
    (lambda: iter(tally.tensor(1.)), TypeError, "no axes"),
    (lambda: tally.ones(2, requires_grad=True).numpy(), RuntimeError, "detach"),
    (lambda: tally.ones(2, dtype=tally.bfloat16).numpy(), TypeError, "bfloat16"),
    (lambda: tally.ones(1, device="meta").item(), RuntimeError, "meta"),
    (lambda: tally.ones(2, device="meta") + tally.ones(2), RuntimeError, "meta"),
    (lambda: nn.functional.embedding(tally.tensor([5]), tally.ones(3, 2)), IndexError, "5"),
    (lambda: nn.functional.cross_entropy(tally.ones(2, 3), tally.tensor([0, 3])), IndexError, "3"),
    (lambda: nn.functional.mse_loss(tally.ones(2), tally.ones(2), reduction="some"), ValueError, "some"),
    (lambda: tally.einops.rearrange(tally.ones(2, 3), "a -> a"), ValueError, "a -> a"),
    (lambda: tally.einops.einsum(tally.ones(2, 3), "a b c -> a"), ValueError, "a b c"),
    (lambda: tally.cat([tally.ones(2, 2), tally.ones(3, 3)]), RuntimeError, "3"),
    (lambda: tally.ones(2, 3).topk(5), RuntimeError, "5"),
    (lambda: tally.ones(2) & 1, TypeError, ""),
    (lambda: tally.ones(2) + "x", TypeError, ""),
    (lambda: tally.ones(2).relu(1), TypeError, "incompatible"),
    (lambda: tally.finfo(tally.int64), TypeError, ""),
    (lambda: tally.Tokenizer().decode([999]), RuntimeError, "999"),
    (lambda: tally.Tokenizer().encode(3), TypeError, "str"),
    (lambda: tally.LanguageModel.make(preset="nonsense"), RuntimeError, "nonsense"),
    (lambda: tally.plan({"train": {"stepz": 3}}), RuntimeError, "steps"),
    (lambda: tally.load("/nonexistent/file"), RuntimeError, "nonexistent"),
])
def test_wrong_use(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


def test_in_place_on_a_saved_tensor():
    x = tally.ones(3, requires_grad=True)
    y = x * 2
    z = y * y
    with tally.no_grad():
        y += 1
    with pytest.raises(RuntimeError, match="inplace"):
        z.sum().backward()


def test_backward_twice():
    x = tally.ones(3, requires_grad=True)
    loss = (x * x).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_in_place_on_a_leaf():
    x = tally.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        x += 1


def test_empty_tensors():
    x = tally.zeros(0, 3)
    assert x.sum().item() == 0 and x.tolist() == [] and (x + 1).shape == (0, 3) and (x @ tally.ones(3, 2)).shape == (0, 2)
    assert x.T.contiguous().shape == (3, 0) and tally.cat([x, x]).shape == (0, 3) and x.numpy().shape == (0, 3)
    with pytest.raises((RuntimeError, IndexError)):
        x.max()
    with pytest.raises(IndexError):
        x[0]


def test_a_hook_that_returns_no_tensor_is_a_type_error():
    x = tally.ones(3, requires_grad=True)
    x.register_hook(lambda g: 5)
    with pytest.raises(TypeError, match="hook: returned"):
        (x * 2).sum().backward()


def test_clamp_outside_the_dtype_and_nan():
    x = tally.tensor([1, 2, 3], dtype=tally.uint8)
    assert x.clamp(-1, 2).tolist() == [1, 2, 2] and x.clamp(2, 300).tolist() == [2, 2, 3]
    assert x.to(tally.int8).clamp(-1000, 1000).tolist() == [1, 2, 3]
    assert tally.tensor([1 << 40]).clamp(0, 1 << 62).tolist() == [1 << 40]
    nan = float("nan")
    for low, high in ((nan, 2), (0, nan)):
        assert tally.isnan(tally.tensor([1., nan, 3]).clamp(low, high)).all()


def test_switches_of_recording_as_a_call_and_without_brackets():
    try:
        tally.set_grad_enabled(False)
        assert not tally.is_grad_enabled()
        with tally.set_grad_enabled(True):
            assert tally.is_grad_enabled()
        assert not tally.is_grad_enabled()
    finally:
        tally.set_grad_enabled(True)

    @tally.set_grad_enabled(False)
    def off():
        return tally.is_grad_enabled()

    assert tally.is_grad_enabled()
    assert not off() and tally.is_grad_enabled() and not off()
    assert not tally.no_grad(tally.is_grad_enabled)()
    with tally.no_grad():
        assert tally.enable_grad(tally.is_grad_enabled)()
    assert tally.is_grad_enabled()


def test_shifts_of_a_number_and_expand_past_int64():
    x = tally.tensor([1, 2], dtype=tally.int8)
    assert (2 << x).tolist() == [4, 8] and (8 >> x).tolist() == [4, 2] and (2 << x).dtype is tally.int8
    with pytest.raises(RuntimeError, match="too many elements"):
        tally.zeros(1).expand(1 << 40, 1 << 40)
