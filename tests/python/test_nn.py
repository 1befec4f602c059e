"""Modules: lists of parameters, state, layers, optimizers."""
import copy

import pytest
import tally
from tally import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.norm = nn.LayerNorm(8)
        self.rms = nn.RMSNorm(8)
        self.body = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.5), nn.Linear(16, 8, bias=False))
        self.register_buffer("scale", tally.ones(1))
        self.head = nn.Linear(8, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids)
        return self.head(self.rms(x + self.body(self.norm(x))) * self.scale)


def test_names_and_tied_weights():
    net = Net()
    names = [n for n, _ in net.named_parameters()]
    assert names == ["embed.weight", "norm.weight", "norm.bias", "rms.weight", "body.0.weight", "body.0.bias",
                     "body.3.weight"]
    assert "head.weight" in net.state_dict() and "scale" in net.state_dict()
    assert [n for n, _ in net.named_modules()][:3] == ["", "embed", "norm"]
    assert "Linear(in_features=8, out_features=16, bias=True)" in repr(net)


def test_training_lowers_the_loss():
    net = Net()
    optimizer = tally.optim.AdamW(net.parameters(), lr=1e-2)
    ids = tally.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    losses = []
    for _ in range(60):
        logits = net(ids)
        loss = nn.functional.cross_entropy(logits.view(-1, 10), ((ids + 1) % 10).view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    net.eval()
    assert tally.equal(net(ids), net(ids))


def test_state_dict_round_trip():
    a, b = Net(), Net()
    ids = tally.tensor([[1, 2]])
    a.eval(), b.eval()
    assert not tally.allclose(a(ids), b(ids))
    b.load_state_dict(a.state_dict())
    assert tally.equal(a(ids), b(ids))
    with pytest.raises(RuntimeError, match="missing"):
        b.load_state_dict({})
    with pytest.raises(RuntimeError, match="unknown"):
        b.load_state_dict({**a.state_dict(), "more": tally.ones(1)})
    with pytest.raises(RuntimeError, match="shape"):
        b.load_state_dict({**a.state_dict(), "norm.bias": tally.ones(3)})


def test_conversion():
    net = Net().to(tally.bfloat16)
    assert all(p.dtype == tally.bfloat16 and p.is_leaf and p.requires_grad for p in net.parameters())
    assert net.embed.weight is net.head.weight
    net.float()
    assert net.embed.weight.dtype == tally.float32


def test_attributes():
    m = nn.Module()
    m.w = nn.Parameter(tally.ones(2))
    m.w = None
    assert list(m.parameters()) == [] and m.w is None
    m.w = nn.Parameter(tally.ones(3))
    del m.w
    with pytest.raises(AttributeError):
        m.w
    with pytest.raises(NotImplementedError):
        m(1)

    class Early(nn.Module):
        def __init__(self):
            self.w = nn.Parameter(tally.ones(1))

    with pytest.raises(AttributeError, match="super"):
        Early()


def test_containers():
    layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
    layers.append(nn.Linear(2, 2))
    layers.insert(0, nn.Identity())
    assert len(layers) == 5 and isinstance(layers[0], nn.Identity) and len(layers[1:3]) == 2 and layers[-1] is list(layers)[4]
    with pytest.raises(IndexError):
        layers[5]
    d = nn.ModuleDict({"a": nn.Linear(2, 2)})
    d["b"] = nn.ReLU()
    assert list(d) == ["a", "b"] and "a" in d and len(list(d.parameters())) == 2


def test_deepcopy():
    net = Net()
    other = copy.deepcopy(net)
    assert tally.equal(net.embed.weight, other.embed.weight)
    with tally.no_grad():
        other.embed.weight += 1
    assert not tally.equal(net.embed.weight, other.embed.weight) and other.embed.weight is other.head.weight


def test_an_optimizer_written_in_python():
    class Sgd(tally.optim.Optimizer):
        def __init__(self, params, lr=0.1):
            super().__init__(params, dict(lr=lr))

        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        state = self.state.setdefault(p, {"steps": 0})
                        state["steps"] += 1
                        p.data -= group["lr"] * p.grad.data

    w = nn.Parameter(tally.tensor([4.0]))
    optimizer = Sgd([w])
    for _ in range(50):
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
    assert abs(w.item()) < 1e-3 and optimizer.state_dict()["state"][0]["steps"] == 50


def test_dropout():
    x = tally.ones(10000)
    y = nn.Dropout(0.25)(x)
    assert abs((y == 0).float().mean().item() - 0.25) < 0.03 and abs(y.mean().item() - 1) < 0.03
    assert not tally.equal(y, nn.Dropout(0.25)(x))
    assert nn.Dropout(0.25).eval()(x) is x


def test_init():
    w = tally.empty(200, 300)
    nn.init.xavier_normal_(w)
    assert abs(w.std().item() - (2 / 500) ** 0.5) < 2e-3
    nn.init.kaiming_uniform_(w, nonlinearity="relu")
    assert abs(w.std().item() - (2 / 300) ** 0.5) < 2e-3
    assert nn.init.zeros_(w).sum().item() == 0 and nn.init.ones_(nn.Parameter(w)).min().item() == 1
    with pytest.raises(ValueError):
        nn.init.xavier_normal_(tally.empty(3))


def test_hooks_of_modules():
    m = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    seen = []
    after = m[0].register_forward_hook(lambda module, args, result: seen.append((module, args[0].shape, result.shape)))
    before = m.register_forward_pre_hook(lambda module, args: args[0] * 0)
    twice = m.register_forward_hook(lambda module, args, result: result + 1)
    y = m(tally.ones(4, 2))
    assert seen == [(m[0], (4, 2), (4, 3))] and tally.allclose(y, m[0].bias.relu() + 1)
    after.remove(), before.remove(), twice.remove(), after.remove()
    assert tally.equal(m(tally.ones(4, 2)), m[0](tally.ones(4, 2)).relu()) and len(seen) == 1


def test_convolutions():
    one = nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2)
    two = nn.Conv2d(3, 8, (3, 5), bias=False)
    assert list(one.state_dict()) == ["weight", "bias"] and list(two.state_dict()) == ["weight"]
    assert tuple(one.weight.shape) == (6, 2, 3) and tuple(two.weight.shape) == (8, 3, 3, 5)
    assert one.weight.abs().max().item() <= 6 ** -0.5 and one.bias.abs().max().item() <= 6 ** -0.5
    assert tuple(one(tally.ones(2, 4, 9)).shape) == (2, 6, 5)
    assert tuple(two(tally.ones(3, 9, 9)).shape) == (8, 7, 5)
    same = nn.Conv2d(1, 1, (2, 3), padding="same", dilation=2)
    assert tuple(same(tally.ones(1, 1, 5, 6)).shape) == (1, 1, 5, 6)
    assert tuple(nn.Conv1d(1, 1, 3, padding="valid")(tally.ones(1, 5)).shape) == (1, 3)
    assert repr(one) == "Conv1d(4, 6, kernel_size=(3,), stride=(2,), padding=(1,), groups=2)"
    two(tally.ones(1, 3, 4, 6)).sum().backward()
    assert two.weight.grad is not None
    for wrong in (lambda: nn.Conv1d(4, 6, 3, groups=3), lambda: nn.Conv1d(4, 6, 3, padding="some"),
                  lambda: nn.Conv2d(4, 6, 3, stride=2, padding="same")):
        with pytest.raises(ValueError):
            wrong()
