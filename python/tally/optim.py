"""Optimizers: a base to derive from, and AdamW of the library."""
from . import _C
from .autograd import no_grad


class Optimizer:
    """Parameters in groups, each with its settings, and a state a parameter. A subclass writes step().

    class Sgd(Optimizer):
        def __init__(self, params, lr=0.01):
            super().__init__(params, dict(lr=lr))
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.data -= group["lr"] * p.grad.data
    """

    def __init__(self, params, defaults):
        params = list(params)
        if not params:
            raise ValueError(f"{type(self).__name__}: no parameters")
        groups = params if isinstance(params[0], dict) else [{"params": params}]
        self.defaults, self.state, self.param_groups = dict(defaults), {}, []
        for g in groups:
            group = {**self.defaults, **g}
            group["params"] = [group["params"]] if isinstance(group["params"], _C.Tensor) else list(group["params"])
            for p in group["params"]:
                if not isinstance(p, _C.Tensor):
                    raise TypeError(f"{type(self).__name__}: a {type(p).__name__} is no parameter")
                if not p.is_leaf:
                    raise ValueError(f"{type(self).__name__}: takes leaf tensors; an op made this one")
            self.param_groups.append(group)
        everything = [id(p) for g in self.param_groups for p in g["params"]]
        if len(set(everything)) != len(everything):
            raise ValueError(f"{type(self).__name__}: a parameter stands twice")

    def _all(self):
        return [p for g in self.param_groups for p in g["params"]]

    def step(self):
        """Changes the parameters by their gradients."""
        raise NotImplementedError(f"{type(self).__name__} has no step()")

    def zero_grad(self, set_to_none=True):
        """Clears the gradients: to None, or to zeros."""
        for p in self._all():
            if p.grad is not None:
                if set_to_none:
                    p.grad = None
                else:
                    p.grad.zero_()

    def state_dict(self):
        """{"state": {number: state of that parameter}, "param_groups": settings with the numbers of their parameters}."""
        number = {id(p): i for i, p in enumerate(self._all())}
        groups = [{**{k: v for k, v in g.items() if k != "params"}, "params": [number[id(p)] for p in g["params"]]}
                  for g in self.param_groups]
        return {"state": {number[id(p)]: dict(s) for p, s in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state):
        """What state_dict() gave, for the same parameters in the same order."""
        everything = self._all()
        if [len(g["params"]) for g in state["param_groups"]] != [len(g["params"]) for g in self.param_groups]:
            raise ValueError(f"{type(self).__name__}: load_state_dict: other groups of parameters")
        for mine, theirs in zip(self.param_groups, state["param_groups"]):
            mine.update({k: v for k, v in theirs.items() if k != "params"})
        self.state = {everything[int(i)]: {k: v.clone() if isinstance(v, _C.Tensor) else v for k, v in s.items()}
                      for i, s in state["state"].items()}


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), of matrices and tables only: vectors are not decayed.
    Moments are float32."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, dict(lr=lr, betas=tuple(betas), eps=eps, weight_decay=weight_decay))
        names = iter(range(len(self._all())))
        self._library = []
        for g in self.param_groups:
            config = {"kind": "adamw", "lr": float(g["lr"]), "beta1": g["betas"][0], "beta2": g["betas"][1],
                      "eps": g["eps"], "weight_decay": g["weight_decay"]}
            self._library.append(_C.LibraryOptimizer(config, [(str(next(names)), p) for p in g["params"]]))

    @no_grad()
    def step(self):
        for g, library in zip(self.param_groups, self._library):
            library.step(float(g["lr"]))

    def state_dict(self):
        whole = super().state_dict()
        for library in self._library:
            for name, tensor in library.state():
                number, moment = name.split(".", 1)
                whole["state"].setdefault(int(number), {"step": library.steps})[moment] = tensor.clone()
        return whole

    def load_state_dict(self, state):
        super().load_state_dict({**state, "state": {}})
        for library in self._library:
            for name, tensor in library.state():
                number, moment = name.split(".", 1)
                saved = state["state"].get(int(number), state["state"].get(number))
                if saved is None:
                    raise ValueError(f"AdamW: load_state_dict: no state of parameter {number}")
                tensor.copy_(saved[moment])
                library.steps = int(saved["step"])
