"""The notes' assertions on the training loop, as Python says them; the step of SGD is written by hand."""
import pytest
import tally
from cruncher import Cruncher
from tally import nn

D, BATCH = 16, 4


def get_batch():
    x = tally.randn(BATCH, D)
    return x, x @ tally.arange(D, dtype=tally.float32)


def train(num_layers, steps, lr, seed):
    tally.manual_seed(seed)
    model, losses = Cruncher(D, num_layers), []
    for _ in range(steps):
        x, y = get_batch()
        pred = model(x)
        assert pred.shape == y.shape == (BATCH,)
        loss = nn.functional.mse_loss(pred, y)
        losses.append(loss.item())
        assert all(p.grad is None for p in model.parameters())  # none is left of the step before
        loss.backward()
        with tally.no_grad():
            for p in model.parameters():
                p.sub_(lr * p.grad)
        model.zero_grad(set_to_none=True)
    return losses


def test_A221_A222_the_loop():
    assert len(train(0, 10, 0.01, seed=2)) == 10


@pytest.fixture(scope="module")
def mean_losses():
    runs = [train(0, 11, 0.01, seed) for seed in range(2000)]
    return [sum(step) / len(runs) for step in zip(*runs)]


def test_A223_the_first_loss_in_expectation(mean_losses):
    assert abs(mean_losses[0] - 1241) < 80


def test_A224_the_loss_shrinks_by_a_factor_a_step(mean_losses):
    factor = 1 - 4 * 0.01 + 0.01 ** 2 * 4 * (BATCH + D + 1) / BATCH
    assert factor == pytest.approx(0.9621)
    assert abs(mean_losses[9] - 877) < 70 and abs(mean_losses[10] - 843) < 70


def test_A225_gradient_of_the_squared_error():
    model = Cruncher(D, 0)
    x, y = get_batch()
    pred = model(x)
    nn.functional.mse_loss(pred, y).backward()
    want = 2 / BATCH * (x.T @ (pred.detach() - y))
    assert tally.allclose(model.final.weight.grad.squeeze(-1), want, rtol=1e-4, atol=1e-4)


def test_A226_slip_the_arguments_are_used():
    same, slow, deep = train(0, 3, 0.01, seed=4), train(0, 3, 0.02, seed=4), train(1, 3, 0.01, seed=4)
    assert same == train(0, 3, 0.01, seed=4) and same[1] != slow[1] and same[0] != deep[0]
