"""The course's lectures 1 and 2 in Python, snippet by snippet; notes.cpp has the same in C++ (docs/notes.md)."""
import math

import tally
from tally import nn
from tally.einops import einsum, rearrange, reduce
from tally.typing import Float, shapes


def creation():
    # [creation]
    x = tally.tensor([[1., 2, 3], [4, 5, 6]])  # one float literal makes all float32
    print(x, tuple(x.shape), x.numel())
    print(tally.zeros(2, 3), tally.arange(4), tally.full((2,), 7))
    print(tally.tensor([[1, 2], [3, 4]]))  # only integers: int64
    # [end]


def broadcasting():
    # [broadcasting]
    x, position = tally.ones(2, 2, 3), tally.tensor([[0., 1, 2], [3, 4, 5]])
    print(x + position)  # (B, T, D) + (T, D)
    print(tally.equal(position.view(3, 2), tally.tensor([[0, 1], [2, 3], [4, 5]])))  # compares after promotion
    # [end]


def dtypes():
    # [dtypes]
    for t in tally.float32, tally.float16, tally.bfloat16, tally.float8_e4m3fn:
        print(tally.zeros(4, 8, dtype=t).nbytes)
    print(tally.tensor([1e-8], dtype=tally.float16))  # underflows
    print(tally.tensor([1e-8], dtype=tally.bfloat16))  # has the exponents of float32
    # [end]


def limits():
    # [limits]
    for t in tally.float32, tally.float16, tally.bfloat16:
        print(tally.finfo(t).max, tally.finfo(t).tiny, tally.finfo(t).eps)
    x = tally.tensor([1000., 0.3, 1 / 512])
    print(x.to(tally.float8_e4m3fn).float())  # at most 448, 3 bits of fraction
    print(x.to(tally.float8_e5m2).float())  # at most 57344, 2 bits
    # [end]


def memory():
    # [memory]
    w = tally.empty(4 * 12288, 12288, device="meta")  # a matrix of GPT-3; on meta it takes no memory
    print(w.numel(), w.nbytes, w.nbytes / 2**30)  # 2.25 GiB
    before = tally.memory_allocated()
    x, y = tally.zeros(32, 32), tally.zeros(32, 32)
    row = x[3]  # a view
    print(tally.memory_allocated() - before)
    # [end]


def strides():
    # [strides]
    x = tally.arange(16).view(4, 4)
    print(x.stride(), x.stride(0), x.stride(1))
    print(2 * x.stride(0) + 2 * x.stride(1), x[2, 2])
    # [end]


def views():
    # [views]
    x = tally.tensor([[1., 2, 3], [4, 5, 6]])
    row, column, y = x[0], x[:, 1], x.transpose(1, 0)
    print(row, row.stride(), row.storage_offset())
    print(column, column.stride(), column.storage_offset())
    print(y, y.stride(), y.is_contiguous(), y.same_storage(x))
    x[0, 0] = 100
    print(row, y)  # all see the write
    # [end]


def refused_view():
    # [refused view]
    x = tally.tensor([[1., 2, 3], [4, 5, 6]])
    y = x.transpose(1, 0)
    try:
        y.view(2, 3)
    except RuntimeError as e:
        print(e)
    print(y.view(3, 1, 2).same_storage(x))  # compatible strides suffice
    z = y.contiguous().view(2, 3)
    print(z, z.same_storage(x), tally.equal(z, y.reshape(2, 3)))
    # [end]


def elementwise():
    # [elementwise]
    x = tally.tensor([1, 4, 9])
    print(x.pow(2), x + x, x * 2)  # integers stay integers
    print(x.sqrt(), x.rsqrt(), x / 0.5)  # float32
    print(tally.ones(3, 3).triu())  # the causal mask
    # [end]


def products():
    # [matmul]
    x, w = tally.ones(4, 8, 16, 32), tally.ones(32, 2)
    y = x @ w  # the one matrix for all 4 * 8 leading items
    print(tuple(y.shape), y[0, 0, 0])
    q = tally.ones(2, 3, 4)
    print(q @ q.transpose(-2, -1))
    # [end]


def einops():
    # [einsum]
    x, y = tally.arange(12.).view(2, 2, 3), tally.ones(2, 2, 3)
    print(einsum(x, y, "batch seq1 hidden, batch seq2 hidden -> batch seq1 seq2"))
    print(tuple(einsum(x, y, "... seq1 hidden, ... seq2 hidden -> ... seq1 seq2").shape))
    # [end]


def reductions():
    # [reduce]
    x = tally.arange(12.).view(2, 2, 3)
    print(reduce(x, "... hidden -> ...", "sum"), x.sum(dim=-1))
    print(reduce(x, "... hidden -> ...", "mean"), x.mean(dim=-1))
    # [end]


def heads():
    # [rearrange]
    x = tally.arange(8.).view(1, 1, 8)
    y = rearrange(x, "... (heads hidden1) -> ... heads hidden1", heads=2)
    print(y, y.same_storage(x))
    z = einsum(y, tally.ones(4, 4), "... hidden1, hidden1 hidden2 -> ... hidden2")
    print(rearrange(z, "... heads hidden2 -> ... (heads hidden2)"))
    # [end]


def annotations():
    # [shapes]
    @shapes
    def sizes(x: Float["batch seq heads hidden"]):
        print(x.shape[0], x.shape[3])
    sizes(tally.ones(2, 2, 1, 3))
    # [end]


def gradients():
    # [gradients]
    x, w = tally.tensor([1., 2, 3]), tally.tensor([1., 1, 1], requires_grad=True)
    pred = x @ w
    loss = 0.5 * (pred - 5).pow(2)
    loss.backward()
    print(pred.detach(), loss.detach(), w.grad)
    print(x.grad is not None, pred.grad is not None)  # no gradient wanted; not a leaf
    # [end]


def two_layers():
    # [two layers]
    x, w1 = tally.tensor([[1., 2], [3, 4]]), tally.tensor([[1., 0], [1, 1]], requires_grad=True)
    w2 = tally.tensor([[1.], [2]], requires_grad=True)
    h1 = x @ w1
    h2 = h1 @ w2
    h1.retain_grad(), h2.retain_grad()
    h2.pow(2).mean().backward()
    print(tally.equal(w2.grad, h1.T @ h2.grad), tally.equal(h1.grad, h2.grad @ w2.T))
    print(w1.grad)  # x.T @ h1.grad
    # [end]


def initialisation():
    # [init]
    tally.manual_seed(0)
    x, w = tally.randn(64, 4096), tally.randn(4096, 32)
    std_of = lambda y: float(round(y.pow(2).mean().sqrt().item()))
    print(std_of(x @ w), std_of(x @ (w / 64)))  # grows with the root of 4096; 1 after Xavier's
    cut = nn.init.trunc_normal_(tally.empty(4096, 32), std=1 / 64, a=-3 / 64, b=3 / 64)
    print(cut.abs().max().item() <= 3 / 64)
    # [end]


# [modules]
class Linear(nn.Module):
    def __init__(self, input_dim, output_dim):
        super().__init__()
        self.weight = nn.Parameter(tally.randn(input_dim, output_dim) / math.sqrt(input_dim))

    def forward(self, x):
        return x @ self.weight


class Cruncher(nn.Module):
    def __init__(self, dim, num_layers):
        super().__init__()
        self.layers = nn.ModuleList([Linear(dim, dim) for i in range(num_layers)])
        self.final = Linear(dim, 1)

    def forward(self, x):  # (B, D) -> (B)
        for layer in self.layers:
            x = layer(x)
        return self.final(x).squeeze(-1)
# [end]


def modules():
    # [modules]

    model = Cruncher(64, 2)
    for name, p in model.state_dict().items():
        print(name, p.numel())
    print(tuple(model(tally.randn(8, 64)).shape))
    # [end]


def randomness():
    # [randomness]
    tally.manual_seed(0)
    first = tally.rand(4)
    tally.manual_seed(0)
    again, next = tally.rand(4), tally.rand(4)
    print(first, tally.equal(again, first), tally.equal(next, first))
    # [end]


def data():
    # [data]
    import numpy as np
    np.arange(1, 11, dtype=np.int32).tofile("ids.i32")  # 40 bytes, no header
    x, y = tally.Batches("ids.i32:i32", batch_size=2, sequence_length=4, order="sequential")[0]
    print(x, y)
    # [end]


def optimizer():
    # [optimizer]
    w = nn.Parameter(tally.tensor([[1., -1]]))
    adamw = tally.optim.AdamW([w], lr=0.1, weight_decay=0.1)
    for i in range(2):
        w.pow(2).sum().backward()
        adamw.step()
        adamw.zero_grad()
        print(w.detach())
    # [end]


def train_loop():
    # [train loop]
    tally.manual_seed(0)
    model = Cruncher(16, 0)
    true_w = tally.arange(16.)
    for step in range(200):
        x = tally.randn(4, 16)
        loss = nn.functional.mse_loss(model(x), x @ true_w)
        loss.backward()
        for p in model.parameters():
            p.data -= 0.05 * p.grad  # SGD
        model.zero_grad(set_to_none=True)
        if step % 50 == 0:
            print(step, float(round(loss.item())))
    print((model.final.weight.detach().squeeze(1) - true_w).abs().max().item() < 1e-3)
    # [end]


def checkpoint():
    # [checkpoint]
    model, other = Cruncher(64, 3), Cruncher(64, 3)
    tally.save({"model": model.state_dict()}, "checkpoint.safetensors")
    other.load_state_dict(tally.load("checkpoint.safetensors")["model"])
    x = tally.randn(8, 64)
    print(tally.equal(model(x), other(x)))
    for name in other.state_dict():
        print(name)
    # [end]


for name, run in {
        "creation": creation, "broadcasting": broadcasting, "dtypes": dtypes, "limits": limits, "memory": memory,
        "strides": strides, "views": views, "refused view": refused_view, "elementwise": elementwise, "matmul": products,
        "einsum": einops, "reduce": reductions, "rearrange": heads, "shapes": annotations, "gradients": gradients,
        "two layers": two_layers, "init": initialisation, "modules": modules, "randomness": randomness, "data": data,
        "optimizer": optimizer, "train loop": train_loop, "checkpoint": checkpoint}.items():
    print(f"[{name}]")
    run()
