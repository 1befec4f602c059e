"""The decoders of Tally's presets in plain PyTorch, from a run's config.json and with the weights of its checkpoint.

One class covers what tally/models/decoder.cpp does: pre-norm blocks, LayerNorm or RMSNorm, learned positions or
half-split RoPE, grouped keys and values, GELU (erf or tanh) or SwiGLU, optional biases, tied or own head. Written as
PyTorch is fastest with it: q, k, v and gate, up are one linear each, norms and attention are PyTorch's own functions.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def rope_table(positions, head_dim, theta):
    """cos and sin, (positions, head_dim) f32, the halves repeated; angles in f64."""
    frequency = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angle = torch.arange(positions, dtype=torch.float64)[:, None] * frequency
    return torch.cat([angle.cos(), angle.cos()], -1).float(), torch.cat([angle.sin(), angle.sin()], -1).float()


def rope(x, cos, sin):
    """(B, H, T, d): element i turns with element i + d/2."""
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Block(nn.Module):
    def __init__(self, c, norm):
        super().__init__()
        d, self.heads, self.kv = c["d_model"], c["n_heads"], c["n_kv_heads"]
        self.head_dim = d // self.heads
        self.activation = c["activation"]
        self.widths = [self.heads * self.head_dim, self.kv * self.head_dim, self.kv * self.head_dim]
        self.attn_norm, self.mlp_norm = norm(), norm()
        self.qkv = nn.Linear(d, sum(self.widths), bias=c["bias"])
        self.o = nn.Linear(d, d, bias=c["bias"])
        self.up = nn.Linear(d, c["d_ff"] * (2 if self.activation == "swiglu" else 1), bias=c["bias"])
        self.down = nn.Linear(c["d_ff"], d, bias=c["bias"])

    def attend(self, x, table):
        batch, t, d = x.shape
        q, k, v = self.qkv(x).split(self.widths, -1)
        q = q.view(batch, t, self.heads, self.head_dim).transpose(1, 2)
        k, v = (y.view(batch, t, self.kv, self.head_dim).transpose(1, 2) for y in (k, v))
        if table is not None:
            q, k = rope(q, *table), rope(k, *table)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv != self.heads)
        return self.o(y.transpose(1, 2).reshape(batch, t, d))

    def feed_forward(self, x):
        y = self.up(x)
        if self.activation == "swiglu":
            gate, y = y.chunk(2, -1)
            return self.down(F.silu(gate) * y)
        return self.down(F.gelu(y, approximate="tanh" if self.activation == "gelu_tanh" else "none"))

    def forward(self, x, table):
        x = x + self.attend(self.attn_norm(x), table)
        return x + self.feed_forward(self.mlp_norm(x))


class Decoder(nn.Module):
    """c: the "model" group of config.json."""

    def __init__(self, c):
        super().__init__()
        if c["activation"] not in ("swiglu", "gelu", "gelu_tanh") or c["rope_style"] != "half_split" or c["dropout"]:
            raise SystemExit(f"torch_models.py does not know this model: {c}")
        d, eps = c["d_model"], c["norm_eps"]
        norm = (lambda: nn.LayerNorm(d, eps, bias=c["bias"])) if c["norm"] == "layer" else (lambda: nn.RMSNorm(d, eps))
        self.embed = nn.Embedding(c["vocab_size"], d)
        self.position = nn.Embedding(c["context"], d) if c["position"] == "learned" else None
        self.blocks = nn.ModuleList(Block(c, norm) for _ in range(c["n_layers"]))
        self.norm = norm()
        self.head = nn.Linear(d, c["vocab_size"], bias=False)
        if c["tied"]:
            self.head.weight = self.embed.weight
        self.table = None
        if c["position"] == "rope":
            self.table = rope_table(c["context"], d // c["n_heads"], c["rope_theta"])

    def forward(self, ids, targets):
        """ids, targets (B, T) i64 -> mean cross-entropy in nats."""
        t = ids.shape[1]
        x = self.embed(ids)
        if self.position is not None:
            x = x + self.position.weight[:t]
        table = None if self.table is None else tuple(y[:t] for y in self.table)
        for block in self.blocks:
            x = block(x, table)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def torch_names(name):
    """The sources, in Tally's names, of one parameter in this file's names."""
    for fused, parts in (("qkv", ("attn.q", "attn.k", "attn.v")), ("o", ("attn.o",)), ("down", ("mlp.down",))):
        if f".{fused}." in name:
            return [name.replace(f".{fused}.", f".{part}.") for part in parts]
    if ".up." in name:
        return [name.replace(".up.", ".mlp.gate."), name.replace(".up.", ".mlp.up.")]
    return [name]


@torch.no_grad()
def load(model, weights):
    """weights: {Tally's name: tensor}. Every one is used, and every parameter is set, or it is an error."""
    used = set()
    for name, p in model.named_parameters():
        sources = [n for n in torch_names(name) if n in weights]
        if not sources:
            raise SystemExit(f"the checkpoint has nothing for {name}")
        p.copy_(torch.cat([weights[n] for n in sources]))
        used.update(sources)
    if used != set(weights):
        raise SystemExit(f"weights of the checkpoint without a place: {sorted(set(weights) - used)}")
