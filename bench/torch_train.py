"""The PyTorch side of bench/vs_torch.py and bench/vs_torch_cuda.py: trains the model of a Tally run from its checkpoint
on its batches.

    torch_train.py RUN --data DATA --mode eager|compile|graphs --steps N --threads N [--device cuda]

One JSON object on standard output. On a card parameters are f32 and products bf16 (autocast), TF32 stays off.

Batches are read from the token shards at the places that tally/data/loader.h gives by its counter-based generator.
Times are of whole steps: reading the batch, forward, backward, clipping, the fused AdamW.
"""
import argparse
import json
import pathlib
import time

import numpy as np
import safetensors.torch
import torch

import torch_models


def philox_u64(seed, stream, position):
    """random_u64() of tally/base/rng.h: Philox4x32-10."""
    k = [seed & 0xFFFFFFFF, seed >> 32]
    c = [position & 0xFFFFFFFF, position >> 32, stream & 0xFFFFFFFF, stream >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return (c[0] << 32) | c[1]


class Batches:
    """The random windows of a run (tally/data/loader.h) over the train_*.tok shards of a data folder."""
    STREAM = 2  # RandomStream::kData

    def __init__(self, folder, seed, batch, context):
        shards = [self.read(path) for path in sorted(pathlib.Path(folder).glob("train_*.tok"))]
        self.ids = np.concatenate(shards)
        self.seed, self.batch, self.context = seed, batch, context

    @staticmethod
    def read(path):
        """One shard: the header is described in tally/io/shard.h."""
        data = path.read_bytes()
        kind, tokens = int.from_bytes(data[12:16], "little"), int.from_bytes(data[16:24], "little")
        if data[:8] != b"TALLYTOK" or kind not in (1, 2):
            raise SystemExit(f"{path}: not a token shard")
        return np.frombuffer(data, "<u2" if kind == 1 else "<u4", tokens, 256)

    def __call__(self, step):
        rows = []
        for row in range(self.batch):
            index = step * self.batch + row
            start = philox_u64(self.seed, self.STREAM, index) * (len(self.ids) - self.context) >> 64
            rows.append(self.ids[start:start + self.context + 1])
        ids = torch.from_numpy(np.stack(rows).astype(np.int64))
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def kilobytes(key):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {key}")


def saved_bytes(model, ids, targets):
    """Bytes that eager autograd keeps for the backward of one batch, each storage once, parameters left out."""
    skip = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept = {}

    def pack(t):
        s = t.untyped_storage()
        if s.data_ptr() not in skip:
            kept[s.data_ptr()] = s.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        loss = model(ids, targets)  # noqa: F841  holds the graph, so that no storage is given back and counted twice
    return sum(kept.values())


def make_optimizer(model, o):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": o["weight_decay"]},
                              {"params": vectors, "weight_decay": 0.0}],
                             lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"], fused=True)


def clip_by_exact_norm(parameters, most):
    """clip_grad_norm_ with the squares summed in f64: its own f32 sum is off by 2e-5 at llama-30m's 28 million
    gradients, which ten steps of AdamW raise to 5e-4 of the loss (f64 throughout agrees with the exact norm)."""
    norm = torch.sqrt(sum((p.grad.double() ** 2).sum() for p in parameters))
    scale = min(1.0, most / (norm.item() + 1e-6))
    for p in parameters:
        p.grad.mul_(scale)
    return norm


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--mode", choices=["eager", "compile", "graphs"], default="eager")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--saved", action="store_true", help="count the bytes kept for the backward as well")
    parser.add_argument("--exact-norm", action="store_true", help="clip by a norm summed in f64 (slow)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    imported = kilobytes("VmRSS")

    config = json.loads((options.run / "config.json").read_text())
    train, optim = config["train"], config["optim"]
    if config["schedule"]["kind"] != "constant" or config["schedule"]["warmup"] or train["accumulate"] != 1:
        raise SystemExit("torch_train.py knows a constant learning rate and no accumulation")
    model = torch_models.Decoder(config["model"])
    checkpoint = options.run / "checkpoints" / (options.run / "latest").read_text().strip()
    torch_models.load(model, safetensors.torch.load_file(checkpoint / "model.safetensors"))
    on_card = options.device != "cpu"
    if on_card:
        model = model.to(device=options.device, dtype=torch.float32)
        if model.table is not None:
            model.table = tuple(y.to(options.device) for y in model.table)
    optimizer = make_optimizer(model, optim)
    batches = Batches(options.data, train["seed"], train["batch"], train["context"] or config["model"]["context"])
    forward = model
    if options.mode != "eager":
        forward = torch.compile(model, mode="reduce-overhead" if options.mode == "graphs" else None)
    parameters = list(model.parameters())

    losses, norms, seconds = [], [], []
    for step in range(options.steps):
        start = time.perf_counter()
        ids, targets = (x.to(options.device, non_blocking=True) for x in batches(step))
        with torch.autocast(options.device, torch.bfloat16, enabled=on_card):
            loss = forward(ids, targets)
        loss.backward()
        if options.exact_norm:
            norm = clip_by_exact_norm(parameters, optim["clip"])
        else:
            norm = torch.nn.utils.clip_grad_norm_(parameters, optim["clip"], foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
        norms.append(norm.item())
    result = {"losses": losses, "grad_norms": norms, "step_seconds": seconds, "max_rss_bytes": kilobytes("VmHWM"),
              "imported_rss_bytes": imported, "torch": torch.__version__,
              "parameters": sum(p.numel() for p in parameters)}
    if on_card:
        result["peak_bytes"] = torch.cuda.max_memory_allocated()
        result["card"] = torch.cuda.get_device_name()
    if options.saved:
        result["saved_bytes"] = saved_bytes(model, *batches(0))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
