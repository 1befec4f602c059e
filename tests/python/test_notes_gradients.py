"""The notes' assertions on gradients, parameters, modules, randomness and checkpoints: one test an A-line."""
import math
import random

import pytest
import tally
from cruncher import Cruncher, Linear
from tally import nn


def test_A156_A157_A158_A159_a_linear_model():
    x = tally.tensor([1., 2, 3])
    w = tally.tensor([1., 1, 1], requires_grad=True)
    pred_y = x @ w
    loss = 0.5 * (pred_y - 5).pow(2)
    loss.backward()
    assert pred_y.item() == 6 and loss.item() == 0.5
    assert loss.grad is None and pred_y.grad is None and x.grad is None
    assert tally.equal(w.grad, tally.tensor([1, 2, 3]))


@pytest.fixture
def two_layers():
    b, d, k = 8, 6, 3
    x = tally.ones(b, d) + 0.1 * tally.randn(b, d)
    w1 = tally.randn(d, d, requires_grad=True)
    w2 = tally.randn(d, k, requires_grad=True)
    h1 = x @ w1
    h2 = h1 @ w2
    h1.retain_grad(), h2.retain_grad()
    loss = h2.pow(2).mean()
    loss.backward()
    return x, w1, w2, h1, h2


def test_A160_gradient_of_the_last_layer(two_layers):
    h2 = two_layers[4]
    assert tally.allclose(h2.grad, 2 * h2 / h2.numel())


def test_A161_A162_slip_gradient_of_w2(two_layers):
    _, _, w2, h1, h2 = two_layers
    assert w2.grad.shape == w2.shape and tally.allclose(w2.grad, h1.T @ h2.grad, atol=1e-6)


def test_A163_gradient_of_h1(two_layers):
    _, _, w2, h1, h2 = two_layers
    assert tally.allclose(h1.grad, h2.grad @ w2.T, atol=1e-6)


def test_A164_gradient_of_w1(two_layers):
    x, w1, _, h1, _ = two_layers
    assert tally.allclose(w1.grad, x.T @ h1.grad, atol=1e-5)


def test_A165_a_gradient_has_its_tensors_shape(two_layers):
    for t in two_layers[1:]:
        assert t.grad.shape == t.shape


def test_A166_slip_other_gradients_need_retain_grad():
    w = tally.ones(3, requires_grad=True)
    h = w * 2
    h.sum().backward()
    assert h.grad is None and w.grad is not None


def test_A172_parameters_are_tensors():
    w = nn.Parameter(tally.randn(4, 2))
    assert isinstance(w, tally.Tensor) and type(w.data) is tally.Tensor and w.requires_grad


def test_A173_A174_A175_the_spread_of_an_output():
    x, w = tally.randn(16384), nn.Parameter(tally.randn(16384, 32))
    y = x @ w
    assert y.shape == (32,) and 60 < y.std().item() < 220  # 128 in expectation


def test_A176_A177_A178_A179_xavier():
    n = 16384
    w = nn.Parameter(tally.randn(n, 32) / math.sqrt(n))
    y = tally.randn(64, n) @ w
    assert abs(y.std().item() - 1) < 0.1 and abs(w.std().item() * 128 - 1) < 0.01


def test_A180_A181_slip_bounds_are_absolute():
    n = 16384
    w = nn.Parameter(nn.init.trunc_normal_(tally.empty(n, 32), std=1 / math.sqrt(n), a=-3, b=3))
    assert abs(w.std().item() * math.sqrt(n) - 1) < 0.01 and w.abs().max().item() > 3 / math.sqrt(n)
    cut = nn.init.trunc_normal_(tally.empty(n, 32), std=1 / math.sqrt(n), a=-3 / math.sqrt(n), b=3 / math.sqrt(n))
    assert abs(cut.std().item() * math.sqrt(n) - 0.98658) < 0.01


def test_A182_scores_are_divided_by_the_root():
    q, k = tally.randn(256, 64), tally.randn(256, 64)
    assert abs((q @ k.T / math.sqrt(64)).std().item() - 1) < 0.05


def get_num_parameters(model):
    return sum(p.numel() for p in model.parameters())


def test_A183_linear():
    layer = Linear(4, 2)
    assert [n for n, _ in layer.named_parameters()] == ["weight"] and layer(tally.ones(3, 4)).shape == (3, 2)


def test_A184_A185_names_of_parameters():
    sizes = [(n, p.numel()) for n, p in Cruncher(64, 2).named_parameters()]
    assert sizes == [("layers.0.weight", 4096), ("layers.1.weight", 4096), ("final.weight", 64)]
    assert list(Cruncher(64, 2).state_dict()) == [n for n, _ in sizes]


def test_A186_A187_A189_A190_number_of_parameters():
    assert get_num_parameters(Cruncher(64, 2)) == 8256 and get_num_parameters(Cruncher(64, 0)) == 64
    model = Cruncher(64, 3)
    assert get_num_parameters(model) == 12352 and sum(p.nbytes for p in model.parameters()) == 49408


def test_A188_forward():
    assert Cruncher(64, 2)(tally.randn(8, 64)).shape == (8,)


def test_A191_moving_a_model():
    model = Cruncher(64, 2)
    assert model.to("meta") is model and all(p.device == tally.device("meta") for p in model.parameters())
    assert model(tally.empty(8, 64, device="meta")).shape == (8,)


def test_A192_A193_A194_seeds():
    np = pytest.importorskip("numpy")
    draws = []
    for _ in range(2):
        tally.manual_seed(0), np.random.seed(0), random.seed(0)
        draws.append((tally.rand(4).tolist(), np.random.rand(4).tolist(), random.random()))
    assert draws[0] == draws[1]
    tally.manual_seed(0), random.seed(1)
    assert tally.rand(4).tolist() == draws[0][0]


def test_A195_values_of_our_own_generator():
    tally.manual_seed(0)
    first = tally.rand(4)
    again = tally.rand(4)
    tally.manual_seed(0)
    assert tally.equal(tally.rand(4), first) and tally.equal(tally.rand(4), again) and not tally.equal(first, again)


def test_A196_A197_A198_slip_raw_arrays(tmp_path):
    np = pytest.importorskip("numpy")
    data = np.arange(1, 11, dtype=np.int32)
    file = tmp_path / "data.npy"
    data.tofile(file)
    assert file.stat().st_size == 40
    assert np.array_equal(np.memmap(file, dtype=np.int32), data)
    with pytest.raises(ValueError):
        np.load(file)
    batches = tally.Batches(f"{file}:i32", batch_size=1, sequence_length=4, order="sequential")
    assert batches.tokens == 10 and batches[0][0].tolist() == [[1, 2, 3, 4]]


def test_A199_A200_A203_batches(tmp_path):
    np = pytest.importorskip("numpy")
    file = tmp_path / "ids.i32"
    np.arange(1, 11, dtype=np.int32).tofile(file)
    batches = tally.Batches(str(file), batch_size=2, sequence_length=4, seed=3)
    seen = set()
    for k in range(50):
        x, y = batches[k]
        assert x.shape == (2, 4) and x.dtype == tally.int32 and tally.equal(y, x + 1)
        for row in x.tolist():
            assert row == list(range(row[0], row[0] + 4)) and 1 <= row[0] <= 6
            seen.add(row[0])
    assert seen == {1, 2, 3, 4, 5, 6}


def test_A213_zero_grad():
    model = Cruncher(4, 2)
    model(tally.randn(2, 4)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    model.zero_grad(set_to_none=True)
    assert all(p.grad is None for p in model.parameters())


def test_A227_mse_loss():
    x, y = tally.randn(5), tally.randn(5)
    assert nn.functional.mse_loss(x, y).item() == pytest.approx((x - y).pow(2).mean().item())


def test_A228_A229_A231_checkpoint(tmp_path):
    def loss_of(model):
        tally.manual_seed(5)
        return model(tally.randn(4, 64)).pow(2).mean()

    def optimizer_of(model):
        return tally.optim.AdamW(model.parameters(), lr=1e-3)

    def step(model, optimizer):
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()

    model = Cruncher(64, 3)
    optimizer = optimizer_of(model)
    step(model, optimizer)
    path = tmp_path / "checkpoint.safetensors"
    tally.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    loaded = tally.load(path)
    assert list(loaded["model"]) == ["layers.0.weight", "layers.1.weight", "layers.2.weight", "final.weight"]
    assert sum(t.numel() for t in loaded["model"].values()) == 12352
    other = Cruncher(64, 3)
    other_optimizer = optimizer_of(other)
    other.load_state_dict(loaded["model"])
    other_optimizer.load_state_dict(loaded["optimizer"])
    step(model, optimizer), step(other, other_optimizer)
    assert all(tally.equal(a, b) for a, b in zip(model.parameters(), other.parameters()))


def two_layers_cost(b, d, k, x_needs_grad=True):
    """FLOPs of the notes' two layers, forward and backward, counted on meta."""
    x = tally.ones(b, d, device="meta", requires_grad=x_needs_grad)
    w1 = tally.ones(d, d, device="meta", requires_grad=True)
    w2 = tally.ones(d, k, device="meta", requires_grad=True)
    with tally.Ledger() as forward:
        h2 = x @ w1 @ w2
    with tally.Ledger() as backward:
        h2.backward(tally.ones(b, k, device="meta"))
    return forward.matmul_flops, backward.matmul_flops


def test_A167_flops_of_the_forward_pass():
    assert two_layers_cost(1024, 256, 64)[0] == 167772160
    assert two_layers_cost(16384, 32768, 8192)[0] == 43980465111040


def test_A168_flops_of_the_backward_pass_are_twice():
    assert two_layers_cost(1024, 256, 64)[1] == 335544320
    assert two_layers_cost(16384, 32768, 8192)[1] == 87960930222080


def test_A169_six_times_data_times_parameters():
    assert sum(two_layers_cost(1024, 256, 64)) == 503316480 == 6 * 1024 * 81920
    assert sum(two_layers_cost(16384, 32768, 8192)) == 131941395333120 == 6 * 16384 * 1342177280


@pytest.mark.parametrize("b,d,k", [(2, 3, 5), (7, 8, 1), (1, 1, 1)])
def test_A170_the_rule_of_two_four_six(b, d, k):
    assert two_layers_cost(b, d, k) == (2 * b * (d * d + d * k), 4 * b * (d * d + d * k))


def test_A171_less_without_a_gradient_of_x():
    assert sum(two_layers_cost(1024, 256, 64, x_needs_grad=False)) == 369098752 == 503316480 - 2 * 1024 * 256 * 256
