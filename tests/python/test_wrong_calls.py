"""Must be true, line 5: each wrong call raises what PyTorch's users expect and says op, shapes and remedy in one line; and
ops take empty tensors as others."""
import math

import pytest
import tally
from tally import einops, nn

F, one = nn.functional, tally.ones


def meta(*size):
    return one(*size, device="meta")


def saved_changed():
    x = one(3, requires_grad=True)
    y = x * 2
    z = y * y
    with tally.no_grad():
        y.add_(1)
    z.sum().backward()


def twice():
    x = one(3, requires_grad=True)
    loss = (x * x).sum()
    loss.backward()
    loss.backward()


def leaf_in_place():
    x = one(3, requires_grad=True)
    x += 1


def view_of_leaf_in_place():
    x = one(3, requires_grad=True)
    x[0] = 1


def expanded_in_place():
    x = one(1).expand(3)
    x.add_(1)


def function_returns_wrong_shape():
    class G(tally.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g[:1]

    G.apply(one(3, requires_grad=True)).sum().backward()


def hook_wrong():
    x = one(3, requires_grad=True)
    x.register_hook(lambda g: g[:1])
    (x * 2).sum().backward()


# call, error, parts of its text (between |)
CASES = [
    (lambda: one(2, 3) @ one(2, 3), RuntimeError, "matmul: | (2, 3) and (2, 3)"),
    (lambda: one(2, 3).matmul(one(4)), RuntimeError, "matmul: | (2, 3) and (4"),
    (lambda: one(2) + one(3), RuntimeError, "add: | (2,) and (3,) | broadcast"),
    (lambda: one(2, 3) * one(3, 2), RuntimeError, "mul: | (2, 3) and (3, 2)"),
    (lambda: tally.maximum(one(2), one(3)), RuntimeError, "maximum: | (2,) and (3,)"),
    (lambda: tally.where(one(2) > 0, one(2), one(3)), RuntimeError, "where: | (2,) and (3,)"),
    (lambda: tally.cat([one(2, 2), one(3, 3)]), RuntimeError, "cat: | (3, 3) beside (2, 2)"),
    (lambda: tally.stack([one(2), one(3)]), RuntimeError, "stack: | (2,) | (3,)"),
    (lambda: tally.cat([one(2, 2), one(2)]), RuntimeError, "cat: | 2 and 1"),
    (lambda: one(2, 3).view(4), RuntimeError, "view: | (4,) | (2, 3)"),
    (lambda: one(2, 3).reshape(4), RuntimeError, "(4,) | (2, 3)"),
    (lambda: one(2, 3).reshape(-1, -1), RuntimeError, "view: | -1"),
    (lambda: one(2, 3).T.view(6),
     RuntimeError, "view size is not compatible with input tensor's size and stride | (3, 2) | (1, 3) | (6,) | reshape"),
    (lambda: one(4, 4)[:, :2].view(8),
     RuntimeError, "view size is not compatible with input tensor's size and stride | (4, 2) | (4, 1) | (8,) | reshape"),
    (lambda: one(2, 3).expand(2, 4), RuntimeError, "(2, 3) | (2, 4)"),
    (lambda: one(2, 3).permute(0, 0), RuntimeError, "permute: | twice | (0, 0)"),
    (lambda: one(2, 3).permute(0), RuntimeError, "permute: | (2, 3)"),
    (lambda: one(2, 3)[2], IndexError, "index 2 is out of bounds for dimension 0 with size 2"),
    (lambda: one(2, 3)[0, 0, 0], IndexError, "too many indices | 3 | (2, 3)"),
    (lambda: one(2, 3)[:, 3], IndexError, "index 3 is out of bounds for dimension 1 with size 3"),
    (lambda: one(2, 3)[tally.tensor([2])], IndexError, "index 2 is out of bounds"),
    (lambda: one(2, 3)[one(3) > 0], IndexError, "mask (3,) | (2, 3)"),
    (lambda: one(2, 3)[one(2)], IndexError, "bool | f32"),
    (lambda: one(2,3)["a"], TypeError, "'a' | slices"),
    (lambda: one(2, 3)[1.5], IndexError, "1.5 | slices"),
    (lambda: one(2, 3)[::-1], ValueError, "step -1 | flip"),
    (lambda: one(2, 3).select(0, 5), IndexError, "select: | 5 | (2, 3)"),
    (lambda: one(2, 3).narrow(1, 2, 5), RuntimeError, "narrow: | 2 | 5 | (2, 3)"),
    (lambda: one(2, 3).sum(2), IndexError, "sum: | 2"),
    (lambda: one(2, 3).transpose(0, 5), IndexError, "transpose: | 5"),
    (lambda: one(2, 3).squeeze(3), IndexError, "squeeze: | 3"),
    (lambda: one(2, 3).softmax(2), IndexError, "softmax: | 2"),
    (lambda: one(2, 3).topk(5), RuntimeError, "topk: | 5 | (2, 3)"),
    (lambda: one(2, 3).gather(1, tally.tensor([[3]])), IndexError, "gather: | 3 | 0..2"),
    (lambda: one(2, 3).index_select(0, tally.tensor([2])), IndexError, "index_select: | 2 | 0..1"),
    (lambda: one(2, 3).scatter_add(1, tally.tensor([[7]]), one(1, 1)), IndexError, "scatter_add: | 7 | 0..2"),
    (lambda: one(4).split(0), RuntimeError, "split: | (4,)"),
    (lambda: one(4).split([1, 2]), RuntimeError, "split: | (4,)"),
    (lambda: one(4).chunk(0), RuntimeError, "chunk: | 0"),
    (lambda: one(4).as_strided((4, ), (2, )), RuntimeError, "(4,) | (2,) | storage"),
    (lambda: one(4).unfold(0, 5, 1), RuntimeError, "unfold: | 5 | (4,)"),
    (lambda: one(4).__setitem__(0, one(2)), RuntimeError, "(2,) | ()"),
    (lambda: one(4).__setitem__(9, 1.), IndexError, "index 9"),
    (lambda: one(2).fill_(one(2)), TypeError, "fill_"),
    (lambda: F.embedding(tally.tensor([5]), one(3, 2)), IndexError, "embedding: | 5 | 3 rows"),
    (lambda: F.embedding(one(2), one(3, 2)), RuntimeError, "embedding: | f32"),
    (lambda: F.cross_entropy(one(2, 3), tally.tensor([0, 3])), IndexError, "cross_entropy | 3 | 0..2"),
    (lambda: F.cross_entropy(one(2, 3), tally.tensor([0])), ValueError, "cross_entropy | (2, 3) | (1,)"),
    (lambda: F.cross_entropy(one(2, 3), one(2)), RuntimeError, "cross_entropy | f32"),
    (lambda: F.mse_loss(one(2), one(2), reduction="some"), ValueError, "some | mean, sum or none"),
    (lambda: F.linear(one(2, 3), one(4, 5)), RuntimeError, "linear: | (2, 3) | (4, 5)"),
    (lambda: F.layer_norm(one(2, 3), (4, )), RuntimeError, "layer_norm: | (4,) | (2, 3)"),
    (lambda: F.dropout(one(2), 1.5), ValueError, "dropout: | 1.5"),
    (lambda: F.one_hot(tally.tensor([3]), 2), RuntimeError, "one_hot: | 3"),
    (lambda: F.conv1d(one(1, 2, 5), one(3, 4, 2)), RuntimeError, "conv1d: | (3, 4, 2) | (1, 2, 5)"),
    (lambda: F.conv2d(one(1, 2, 5, 5), one(3, 2, 9, 9)), RuntimeError, "conv2d: | (1, 2, 5, 5)"),
    (lambda: F.scaled_dot_product_attention(one(1, 2, 3, 4), one(1, 2, 3, 5), one(1, 2, 3, 5)),
     RuntimeError, "scaled_dot_product_attention: | (1, 2, 3, 4) | (1, 2, 3, 5)"),
    (lambda: F.pad(one(2), (1, )), RuntimeError, "pad: | (2,)"),
    (lambda: einops.rearrange(one(2,3), "a -> a"), ValueError, "rearrange: | a -> a | (2, 3)"),
    (lambda: einops.rearrange(one(2,3), "a b -> a c"), ValueError, "rearrange: | {b, c} | (2, 3)"),
    (lambda: einops.rearrange(one(2,3), "(a b) c -> a b c", a=3), ValueError, "rearrange: | 2 | 3 | (2, 3)"),
    (lambda: einops.rearrange(one(2,3), "a b -> (a b"), ValueError, "rearrange: | brackets | (2, 3)"),
    (lambda: einops.rearrange(one(2,3), "a a -> a"), ValueError, "rearrange: | twice"),
    (lambda: einops.reduce(one(2,3), "a b -> a", "median"), ValueError, "reduce: | median | prod"),
    (lambda: einops.repeat(one(2), "a -> a b"), ValueError, "repeat: | 'b' | (2,)"),
    (lambda: einops.einsum(one(2,3), one(4,5), "a b, b c -> a c"), ValueError, "einsum: | 'b' | 3 | 4 | (2, 3), (4, 5)"),
    (lambda: einops.einsum(one(2,3), "a b c -> a"), ValueError, "einsum: | (2, 3)"),
    (lambda: tally.expect(one(2,3), "a b c"), ValueError, "expect: | (2, 3) | a b c"),
    (saved_changed, RuntimeError, "modified by an inplace operation | mul | (3,) | version 1"),
    (twice, RuntimeError, "second time | retain_graph"),
    (leaf_in_place, RuntimeError, "add_: | leaf"),
    (view_of_leaf_in_place, RuntimeError, "leaf"),
    (expanded_in_place, RuntimeError, "add_: | single memory location | (3,)"),
    (function_returns_wrong_shape, RuntimeError, "backward of G | (1,) | (3,)"),
    (hook_wrong, RuntimeError, "hook | (1,) | (3,)"),
    (lambda: one(2).backward(), RuntimeError, "grad can be implicitly created only for scalar outputs | (2,)"),
    (lambda: one(2, requires_grad=True).backward(),
     RuntimeError, "grad can be implicitly created only for scalar outputs | (2,)"),
    (lambda: one(2, requires_grad=True).sum().backward(one(2)), RuntimeError, "backward: | (2,) | ()"),
    (lambda: tally.autograd.grad(one(1).sum(), [one(2)]), RuntimeError, "grad: | requires a gradient"),
    (lambda: tally.autograd.grad((one(2, requires_grad=True)*1).sum(), [one(2, requires_grad=True)]),
     RuntimeError, "not have been used in the graph | allow_unused"),
    (lambda: one(2).long().requires_grad_(), RuntimeError, "i64 | gradient"),
    (lambda: one(2, requires_grad=True).numpy(), RuntimeError, "detach().numpy()"),
    (lambda: one(2).register_hook(print), RuntimeError, "register_hook: | gradient"),
    (lambda: setattr(one(2, requires_grad=True), "grad", one(3)), RuntimeError, "grad: | (3,) | (2,)"),
    (lambda: one(2, device="gpu"), RuntimeError, "gpu | cpu, cuda"),
    (lambda: meta(2) + one(2), RuntimeError, "add: | meta | cpu | to()"),
    (lambda: meta(1).item(), RuntimeError, "meta | values"),
    (lambda: meta(2).tolist(), RuntimeError, "meta | values"),
    (lambda: bool(meta(1)), RuntimeError, "meta | values"),
    (lambda: meta(2)[meta(2) > 0], RuntimeError, "nonzero: | meta"),
    (lambda: meta(2).nonzero(), RuntimeError, "nonzero: | meta"),
    (lambda: one(2).copy_(one(3)), RuntimeError, "copy_: | (2,) and (3,)"),
    (lambda: one(2, dtype=tally.bfloat16).numpy(), TypeError, "bfloat16 | float().numpy()"),
    (lambda: one(2) & 1, TypeError, "bitwise_and: | f32"),
    (lambda: one(2) << 1, TypeError, "shift: | f32"),
    (lambda: tally.tensor([True]) - 1, RuntimeError, "sub: bool | logical_not"),
    (lambda: -tally.tensor([True]), RuntimeError, "neg: | logical_not"),
    (lambda: tally.tensor([2]) ** -1, RuntimeError, "pow: | -1 | float"),
    (lambda: tally.tensor([2]) // 0, RuntimeError, "ZeroDivision | floor_divide"),
    (lambda: tally.tensor([1]).add_(1.5), RuntimeError, "add_: | f32 | i64"),
    (lambda: tally.tensor([1]).sqrt_(), RuntimeError, "sqrt_: | f32 | i64"),
    (lambda: tally.tensor([1, 2]).mean(), RuntimeError, "mean: | i64 | dtype="),
    (lambda: one(2, 2, dtype=tally.float64) @ one(2, 2), RuntimeError, "matmul: | f64 and f32"),
    (lambda: tally.zeros(2).to(tally.float8_e4m3fn) + one(2), TypeError, "f8e4m3 | convert"),
    (lambda: tally.zeros(0).max(), RuntimeError, "max: | (0,)"),
    (lambda: tally.zeros(0).argmax(), IndexError, "argmax: | (0,)"),
    (lambda: tally.zeros(0, 3).max(0), IndexError, "max: | (0, 3)"),
    (lambda: tally.zeros(0).min(), RuntimeError, "min: | (0,)"),
    (lambda: tally.zeros(0)[0], IndexError, "index 0 | size 0"),
    (lambda: tally.zeros(0).item(), RuntimeError, "item: | (0,)"),
    (lambda: bool(tally.zeros(0)), RuntimeError, "ambiguous | any()"),
    (lambda: tally.zeros(0, 3).view(-1, 0), RuntimeError, "view: | (-1, 0)"),
    (lambda: tally.stack([]), RuntimeError, "stack: | empty"),
    (lambda: tally.cat([]), ValueError, "cat: | non-empty list"),
    (lambda: bool(one(2)), RuntimeError, "ambiguous | (2,)"),
    (lambda: one(2).item(), RuntimeError, "item: | (2,)"),
    (lambda: float(one(2)), ValueError, "(2,)"),
    (lambda: len(tally.tensor(1)), TypeError, "len: | no axes"),
    (lambda: iter(tally.tensor(1)), TypeError, "iter: | no axes"),
    (lambda: "a" in one(2), RuntimeError, "str | numbers"),
    (lambda: f"{one(2):.2f}", TypeError, ".2f | (2,)"),
    (lambda: one(2) * 2**70, OverflowError, "64 bits"),
    (lambda: one(2).clamp(0, 2**70), OverflowError, "64 bits"),
    (lambda: tally.tensor(2**70), RuntimeError, "int64"),
    (lambda: tally.tensor([[1, 2], [3]]), ValueError, "unequal length"),
    (lambda: tally.tensor([1, [2]]), ValueError, "unequal depth | [2]"),
    (lambda: tally.tensor("a"), TypeError, "no number"),
    (lambda: tally.tensor([one(2), one(2)]), ValueError, "(2,) | stack()"),
    (lambda: tally.tensor([300], dtype=tally.uint8), RuntimeError, "300 | uint8"),
    (lambda: tally.tensor(float("nan"), dtype=tally.int64), RuntimeError, "nan | int64"),
    (lambda: tally.zeros(-1), RuntimeError, "negative | (-1,)"),
    (lambda: tally.zeros(2**40, 2**40), RuntimeError, "larger than any memory"),
    (lambda: tally.zeros(*[1]*9), ValueError, "zeros: | 9 | axes"),
    (lambda: tally.zeros(2.5), TypeError, "zeros: | 2.5"),
    (lambda: tally.arange(0, 5, 0), RuntimeError, "arange: | zero"),
    (lambda: tally.arange(5, 0, 1), RuntimeError, "arange: | 5 to 0"),
    (lambda: tally.linspace(0, 1, -1), RuntimeError, "linspace: | -1"),
    (lambda: tally.randint(5, 5, (2, )), RuntimeError, "randint: | 5"),
    (lambda: tally.eye(-1), RuntimeError, "eye: | -1"),
    (lambda: tally.full((2,), "a"), TypeError, "full"),
    (lambda: one(2, dtype="float32"), TypeError, "ones"),
    (lambda: one(2).foo, AttributeError, "foo"),
    (lambda: one(2).relu(1), TypeError, "relu"),
    (lambda: tally.relu([1.]), TypeError, "relu | list"),
    (lambda: nn.Linear(2, 3)(one(4)), RuntimeError, "linear: | (4,)"),
    (lambda: nn.Module()(1), NotImplementedError, "forward"),
    (lambda: nn.Parameter(tally.tensor([1])), RuntimeError, "i64 | gradient"),
    (lambda: tally.optim.AdamW([]), ValueError, "no parameters"),
    (lambda: nn.Linear(2, 3).load_state_dict({}), RuntimeError, "weight is missing"),
    (lambda: tally.from_numpy([1]), TypeError, "list"),
    (lambda: tally.from_dlpack(3), TypeError, "__dlpack__"),
    (lambda: tally.quantize(one(20), "nvfp4"), ValueError, "(20,) | 16"),
    (lambda: tally.device("cpu:x"), RuntimeError, "cpu:x"),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_wrong_call(number):
    call, error, words = CASES[number]
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    assert type(caught.value) is error, f"{type(caught.value)}: {text}"
    missing = [w for w in words.split(" | ") if w not in text]
    assert not missing, f"{missing} not in: {text}"
    assert "\n" not in text or "incompatible function arguments" in text


@pytest.mark.skipif(tally.cuda.is_available(), reason="there is a card")
@pytest.mark.parametrize("call", [lambda: one(2).cuda(), lambda: one(2).to("cuda:7"), lambda: one(2, device="cuda")])
def test_no_card(call):
    with pytest.raises(RuntimeError, match="CUDA"):
        call()


E = tally.zeros(0, 3)
EMPTY = [
    (lambda: E + 1, (0, 3)), (lambda: E * E, (0, 3)), (lambda: E @ one(3, 4), (0, 4)), (lambda: one(4, 0) @ tally.zeros(0, 3), (4, 3)),
    (lambda: E.T, (3, 0)), (lambda: E.T.contiguous(), (3, 0)), (lambda: E.reshape(3, 0), (3, 0)), (lambda: E.view(0), (0,)),
    (lambda: E.flatten(), (0,)), (lambda: E.sum(0), (3,)), (lambda: E.sum(1), (0,)), (lambda: E.mean(1), (0,)), (lambda: E.sum(), ()),
    (lambda: E.prod(), ()), (lambda: E.max(1).values, (0,)), (lambda: E.argmax(1), (0,)), (lambda: E.any(), ()), (lambda: E.all(0), (3,)),
    (lambda: E.softmax(0), (0, 3)), (lambda: E.softmax(1), (0, 3)), (lambda: E.log_softmax(1), (0, 3)), (lambda: E.logsumexp(1), (0,)),
    (lambda: E.cumsum(0), (0, 3)), (lambda: E.sort(0).values, (0, 3)), (lambda: E.topk(2).values, (0, 2)), (lambda: E.flip(0), (0, 3)),
    (lambda: E.roll(1, 0), (0, 3)), (lambda: tally.cat([E, E]), (0, 3)), (lambda: tally.cat([E, one(2, 3)]), (2, 3)),
    (lambda: tally.stack([E, E]), (2, 0, 3)), (lambda: E[:, 1], (0,)), (lambda: E[E > 0], (0,)), (lambda: one(2, 3)[[]], (0, 3)),
    (lambda: one(2, 3)[2:], (0, 3)), (lambda: E.gather(0, tally.zeros(0, 3, dtype=tally.int64)), (0, 3)), (lambda: E.triu(), (0, 3)),
    (lambda: E.masked_fill(E > 0, 1), (0, 3)), (lambda: E.expand(2, 0, 3), (2, 0, 3)), (lambda: E.repeat(2, 2), (0, 6)),
    (lambda: tally.where(E > 0, E, 1.0), (0, 3)), (lambda: E.clamp(0, 1), (0, 3)), (lambda: E.norm(), ()), (lambda: E.var(1), (0,)),
    (lambda: F.linear(E, one(5, 3)), (0, 5)), (lambda: F.layer_norm(E, 3), (0, 3)), (lambda: F.rms_norm(E, 3), (0, 3)),
    (lambda: F.embedding(tally.zeros(0, dtype=tally.int64), one(4, 2)), (0, 2)), (lambda: F.relu(E), (0, 3)),
    (lambda: F.dropout(E, 0.5, True), (0, 3)), (lambda: F.one_hot(tally.zeros(0, dtype=tally.int64), 4), (0, 4)),
    (lambda: F.pad(E, (1, 1)), (0, 5)), (lambda: F.scaled_dot_product_attention(*[tally.zeros(0, 2, 3, 4)] * 3), (0, 2, 3, 4)),
    (lambda: einops.rearrange(E, "a b -> b a"), (3, 0)), (lambda: einops.reduce(E, "a b -> b", "sum"), (3,)),
    (lambda: einops.repeat(E, "a b -> a b c", c=2), (0, 3, 2)), (lambda: einops.einsum(E, one(3, 2), "a b, b c -> a c"), (0, 2)),
    (lambda: E.to(tally.bfloat16), (0, 3)), (lambda: E.long().sum(1), (0,)), (lambda: tally.tensor(E.tolist()), (0,)),
    (lambda: tally.from_numpy(E.numpy()), (0, 3)), (lambda: E.nonzero(), (0, 2)), (lambda: tally.eye(0), (0, 0)),
    (lambda: tally.arange(0), (0,)), (lambda: tally.randperm(0), (0,)),
]


@pytest.mark.parametrize("number", range(len(EMPTY)))
def test_empty(number):
    call, shape = EMPTY[number]
    y = call()
    assert y.shape == shape and repr(y)
    if y.dtype is tally.float32 and shape and 0 in shape:
        x = y.detach().requires_grad_()
        (x * 2).sum().backward()
        assert x.grad.shape == shape


def test_losses_of_nothing_are_nan_as_in_pytorch():
    assert math.isnan(E.mean().item()) and str(E.mean()) == "tensor(nan)"
    assert math.isnan(F.mse_loss(E, E).item()) and F.mse_loss(E, E, reduction="sum").item() == 0
