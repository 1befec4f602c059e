"""save() and load(): trees of dicts, lists, numbers, strings and tensors in one safetensors file.

The tensors are the file's; the tree around them stands as JSON in its metadata under "tree", where a tensor is
{"tensor": name}. Nothing in a file is run when it is read, unlike a pickle.
"""
import json

from . import _C


def _pack(value, name, tensors):
    if isinstance(value, _C.Tensor):
        tensors.append((name, value.detach()))
        return {"tensor": name, "requires_grad": value.requires_grad}
    if isinstance(value, dict):
        items = []
        for i, (k, v) in enumerate(value.items()):
            if not (k is None or isinstance(k, (str, int, float, bool))):
                raise TypeError(f"save: a key of type {type(k).__name__}; keys are strings or numbers")
            items.append([k, _pack(v, f"{name}/{k}" if isinstance(k, str) else f"{name}/{i}:{k}", tensors)])
        return {"dict": items}
    if isinstance(value, (list, tuple)):
        items = [_pack(v, f"{name}/{i}", tensors) for i, v in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    raise TypeError(f"save: a {type(value).__name__} cannot be saved; dicts, lists, numbers, strings and tensors can")


def _unpack(node, tensors):
    (kind, value) = next(iter(node.items()))
    if kind == "tensor":
        x = tensors[value]
        return x.requires_grad_() if node.get("requires_grad") else x
    if kind == "dict":
        return {k: _unpack(v, tensors) for k, v in value}
    if kind in ("list", "tuple"):
        items = [_unpack(v, tensors) for v in value]
        return items if kind == "list" else tuple(items)
    return value


def save(obj, path):
    """Writes a tree of dicts, lists, tuples, numbers, strings and tensors; the file appears complete or not at all."""
    tensors = []
    tree = _pack(obj, "", tensors)
    named = [(name.lstrip("/") or "tensor", t) for name, t in tensors]
    if len({n for n, _ in named}) != len(named):  # "a/b" as a key beside nested ones
        named = [(f"{i}:{n}", t) for i, (n, t) in enumerate(named)]
    _C.write_safetensors(str(path), named, {"tree": json.dumps(_rename(tree, iter([n for n, _ in named])))})


def _rename(node, names):
    """The tree with each tensor's final name, in the order in which they were packed."""
    (kind, value) = next(iter(node.items()))
    if kind == "tensor":
        return {**node, "tensor": next(names)}
    if kind == "dict":
        return {"dict": [[k, _rename(v, names)] for k, v in value]}
    if kind in ("list", "tuple"):
        return {kind: [_rename(v, names) for v in value]}
    return node


def load(path, device=None):
    """What save() wrote, or a dict of the tensors of any other safetensors file."""
    tensors, metadata = _C.read_safetensors(str(path))
    if device is not None:
        tensors = {n: t.to(device) for n, t in tensors.items()}
    return _unpack(json.loads(metadata["tree"]), tensors) if "tree" in metadata else tensors
