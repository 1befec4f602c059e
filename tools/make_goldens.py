#!/usr/bin/env python3
"""Golden files for tests/golden_test.cpp, made once by hand with PyTorch and committed.

Two small decoders, written here from scratch in plain PyTorch (f32, CPU, one thread):
  gpt2   learned positions, LayerNorm, tanh-GELU, biases, tied head
  llama  half-split RoPE, RMSNorm, SwiGLU, grouped keys and values, untied head
For each: weights, ids, targets (some -100), logits, loss, the gradient of every parameter, then ten AdamW steps (decay of
matrices and tables only, global-norm clipping as clip_grad_norm_, a new batch every step) with their losses, gradient
norms and the final weights of some parameters. Names are those of tally/models/decoder.h.

Seeds: 1337 (gpt2), 1338 (llama). Made with PyTorch 1.13.0a0 (Debian 12 python3-torch) and NumPy 1.24.2:
  /usr/bin/python3 tools/make_goldens.py tests/golden
"""
import json
import math
import os
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F

VOCAB, CONTEXT, LAYERS, D, HEADS, BATCH, STEPS = 65, 24, 2, 32, 4, 2, 10
OPTIM = dict(lr=3e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip=1.0)
DTYPES = {"float32": "F32", "float64": "F64", "int32": "I32"}


def save(path, tensors, metadata):
    """The safetensors container: u64 header length, JSON header, bytes."""
    header, offset, blobs = {"__metadata__": metadata}, 0, []
    for name, array in tensors.items():
        data = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": DTYPES[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
        blobs.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def normal(g, *shape, std=0.1):
    return torch.randn(*shape, generator=g) * std


def gpt2_weights(g):
    w = {"embed.weight": normal(g, VOCAB, D), "position.weight": normal(g, CONTEXT, D)}
    for i in range(LAYERS):
        b = f"blocks.{i}."
        for norm in ("attn_norm", "mlp_norm"):
            w[b + norm + ".weight"], w[b + norm + ".bias"] = 1 + normal(g, D), normal(g, D)
        for name, out, into in [("attn.q", D, D), ("attn.k", D, D), ("attn.v", D, D), ("attn.o", D, D),
                                ("mlp.up", 2 * D, D), ("mlp.down", D, 2 * D)]:
            w[b + name + ".weight"], w[b + name + ".bias"] = normal(g, out, into), normal(g, out)
    w["norm.weight"], w["norm.bias"] = 1 + normal(g, D), normal(g, D)
    return w


def llama_weights(g):
    kv, ff = 2 * (D // HEADS), 48
    w = {"embed.weight": normal(g, VOCAB, D)}
    for i in range(LAYERS):
        b = f"blocks.{i}."
        w[b + "attn_norm.weight"], w[b + "mlp_norm.weight"] = 1 + normal(g, D), 1 + normal(g, D)
        for name, out, into in [("attn.q", D, D), ("attn.k", kv, D), ("attn.v", kv, D), ("attn.o", D, D),
                                ("mlp.gate", ff, D), ("mlp.up", ff, D), ("mlp.down", D, ff)]:
            w[b + name + ".weight"] = normal(g, out, into)
    w["norm.weight"], w["head.weight"] = 1 + normal(g, D), normal(g, VOCAB, D)
    return w


def attend(q, k, v):
    """(B, H, T, d) each; causal."""
    t = q.shape[2]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[3])
    hidden = torch.triu(torch.ones(t, t, dtype=torch.bool), diagonal=1)
    return torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1) @ v


def heads(x, n):
    return x.view(x.shape[0], x.shape[1], n, -1).transpose(1, 2)


def join(x):
    x = x.transpose(1, 2).contiguous()
    return x.view(x.shape[0], x.shape[1], -1)


def gpt2_logits(w, ids):
    lin = lambda x, n: x @ w[n + ".weight"].t() + w[n + ".bias"]
    norm = lambda x, n: F.layer_norm(x, (D,), w[n + ".weight"], w[n + ".bias"], 1e-5)
    x = w["embed.weight"][ids] + w["position.weight"][: ids.shape[1]]
    for i in range(LAYERS):
        b = f"blocks.{i}."
        h = norm(x, b + "attn_norm")
        mixed = attend(heads(lin(h, b + "attn.q"), HEADS), heads(lin(h, b + "attn.k"), HEADS),
                       heads(lin(h, b + "attn.v"), HEADS))
        x = x + lin(join(mixed), b + "attn.o")
        h = norm(x, b + "mlp_norm")
        x = x + lin(F.gelu(lin(h, b + "mlp.up"), approximate="tanh"), b + "mlp.down")
    return norm(x, "norm") @ w["embed.weight"].t()


def rope(x, theta=10000.0):
    """Half-split: element i turns with element i + d/2 (HF Llama)."""
    t, d = x.shape[2], x.shape[3]
    angle = torch.arange(t, dtype=torch.float64)[:, None] * theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    cos, sin = torch.cos(angle).float(), torch.sin(angle).float()
    a, b = x[..., : d // 2], x[..., d // 2:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def llama_logits(w, ids):
    lin = lambda x, n: x @ w[n + ".weight"].t()
    norm = lambda x, n: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w[n + ".weight"]
    repeat = lambda x: x.repeat_interleave(HEADS // 2, dim=1)
    x = w["embed.weight"][ids]
    for i in range(LAYERS):
        b = f"blocks.{i}."
        h = norm(x, b + "attn_norm")
        q, k = rope(heads(lin(h, b + "attn.q"), HEADS)), rope(heads(lin(h, b + "attn.k"), 2))
        x = x + lin(join(attend(q, repeat(k), repeat(heads(lin(h, b + "attn.v"), 2)))), b + "attn.o")
        h = norm(x, b + "mlp_norm")
        x = x + lin(F.silu(lin(h, b + "mlp.gate")) * lin(h, b + "mlp.up"), b + "mlp.down")
    return norm(x, "norm") @ w["head.weight"].t()


def batch(g):
    ids = torch.randint(VOCAB, (BATCH, CONTEXT + 1), generator=g)
    targets = ids[:, 1:].clone()
    targets[torch.rand(BATCH, CONTEXT, generator=g) < 0.15] = -100
    return ids[:, :-1], targets


def loss_of(logits, targets):
    return F.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1), ignore_index=-100)


def make(folder, kind, seed, weights, forward):
    g = torch.Generator().manual_seed(seed)
    w = weights(g)
    out = {"w." + n: t.numpy().copy() for n, t in w.items()}
    for t in w.values():
        t.requires_grad_()
    batches = [batch(g) for _ in range(STEPS)]
    out["ids"] = np.stack([b[0].numpy() for b in batches]).astype(np.int32)
    out["targets"] = np.stack([b[1].numpy() for b in batches]).astype(np.int32)

    logits = forward(w, batches[0][0])
    loss = loss_of(logits, batches[0][1])
    loss.backward()
    out["logits"] = logits.detach().numpy()
    for n, t in w.items():
        out["g." + n] = t.grad.numpy().copy()

    o = OPTIM
    adamw = torch.optim.AdamW([{"params": [t for t in w.values() if t.dim() >= 2], "weight_decay": o["weight_decay"]},
                               {"params": [t for t in w.values() if t.dim() < 2], "weight_decay": 0.0}],
                              lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    losses, norms = [], []
    for ids, targets in batches:
        adamw.zero_grad()
        step_loss = loss_of(forward(w, ids), targets)
        step_loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(list(w.values()), o["clip"])))
        adamw.step()
        losses.append(float(step_loss))
    out["loss"] = np.array(losses[0])
    out["losses"], out["norms"] = np.array(losses), np.array(norms)
    for n in ("blocks.0.attn.k.weight", "blocks.1.mlp.down.weight", "blocks.1.mlp_norm.weight", "norm.weight"):
        out["after." + n] = w[n].detach().numpy()
    # Of every parameter: its sum and sum of squares after the ten steps, in f64.
    for n, t in w.items():
        a = t.detach().numpy().astype(np.float64)
        out["sums." + n] = np.array([a.sum(), (a * a).sum()])
    meta = {"model": kind, "seed": str(seed), "torch": torch.__version__, "numpy": np.__version__,
            "optim": json.dumps(OPTIM), "script": "tools/make_goldens.py"}
    save(os.path.join(folder, kind + ".safetensors"), out, meta)
    print(kind, "losses", losses, "norms", norms)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    make(sys.argv[1], "gpt2", 1337, gpt2_weights, gpt2_logits)
    make(sys.argv[1], "llama", 1338, llama_weights, llama_logits)
