"""Module: the base of layers and models. It lists its parameters, buffers and modules by the names of its attributes."""
from .. import _C
from .._C import Tensor
from .parameter import Parameter

_LISTS = ("_parameters", "_buffers", "_modules")


class ModuleHook:
    """What registering a hook of a module gives."""

    def __init__(self, module, kind, hook):
        self._hooks = module.__dict__.setdefault(kind, {})
        self._key = object()  # kept by the module, so that it is no other's
        self._hooks[self._key] = hook

    def remove(self):
        """The hook is called no more."""
        self._hooks.pop(self._key, None)


class Module:
    """What has parameters and a forward(). Attributes that are parameters or modules are listed in their order."""

    def __init__(self):
        object.__setattr__(self, "_parameters", {})
        object.__setattr__(self, "_buffers", {})
        object.__setattr__(self, "_modules", {})
        object.__setattr__(self, "training", True)

    # Attributes.

    def __setattr__(self, name, value):
        lists = self.__dict__
        if "_parameters" not in lists:
            if isinstance(value, (Parameter, Module)):
                raise AttributeError(f"{type(self).__name__}: call super().__init__() before setting {name}")
            return object.__setattr__(self, name, value)
        if isinstance(value, Parameter):
            kind = "_parameters"
        elif isinstance(value, Module):
            kind = "_modules"
        else:  # None, or a tensor for a buffer, keeps the name in its list
            kind = next((k for k in _LISTS if name in lists[k]), None)
            if kind == "_parameters" and isinstance(value, Tensor):
                raise TypeError(f"{type(self).__name__}: {name} is a parameter; set it to a Parameter or None")
            if value is not None and not (kind == "_buffers" and isinstance(value, Tensor)):
                kind = None
        for other in _LISTS:
            if other != kind:
                lists[other].pop(name, None)
        if kind is None:
            return object.__setattr__(self, name, value)
        lists.pop(name, None)
        lists[kind][name] = value

    def __getattr__(self, name):
        for kind in _LISTS:
            found = self.__dict__.get(kind, {})
            if name in found:
                return found[name]
        raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")

    def __delattr__(self, name):
        for kind in _LISTS:
            if self.__dict__[kind].pop(name, self) is not self:
                return
        object.__delattr__(self, name)

    def __dir__(self):
        return [*super().__dir__(), *self._parameters, *self._buffers, *self._modules]

    def register_parameter(self, name, parameter):
        """Lists a parameter, or None for one that is left out."""
        if parameter is not None and not isinstance(parameter, Parameter):
            raise TypeError(f"register_parameter: {name} is a {type(parameter).__name__}, not a Parameter")
        self._parameters[name] = parameter

    def register_buffer(self, name, tensor, persistent=True):
        """Lists a tensor that moves with the module and, if persistent, is saved with it, but is not trained."""
        self.__dict__.setdefault("_temporary", set())
        self._buffers[name] = tensor
        if not persistent:
            self._temporary.add(name)

    def add_module(self, name, module):
        """Lists a module under a name."""
        self._modules[name] = module

    register_module = add_module

    # Running.

    def forward(self, *args, **kwargs):
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def __call__(self, *args, **kwargs):
        for hook in list(self.__dict__.get("_before_forward", {}).values()):
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        result = self.forward(*args, **kwargs)
        for hook in list(self.__dict__.get("_after_forward", {}).values()):
            changed = hook(self, args, result)
            if changed is not None:
                result = changed
        return result

    def register_forward_pre_hook(self, hook):
        """Calls hook(module, args) before each forward; what it returns, if anything, takes the place of args."""
        return ModuleHook(self, "_before_forward", hook)

    def register_forward_hook(self, hook):
        """Calls hook(module, args, result) after each forward; what it returns, if anything, takes the result's place."""
        return ModuleHook(self, "_after_forward", hook)

    # Lists.

    def children(self):
        """The modules directly inside."""
        return (m for _, m in self.named_children())

    def named_children(self):
        """(name, module) of those directly inside."""
        return ((n, m) for n, m in self._modules.items() if m is not None)

    def modules(self):
        """This module and all inside it."""
        return (m for _, m in self.named_modules())

    def named_modules(self, memo=None, prefix=""):
        """(name, module) of this one ("") and all inside it, each once."""
        memo = set() if memo is None else memo
        if id(self) in memo:
            return
        memo.add(id(self))
        yield prefix, self
        for name, module in self.named_children():
            yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name)

    def _named(self, kind, recurse):
        seen = set()
        for prefix, module in self.named_modules() if recurse else [("", self)]:
            for name, value in getattr(module, kind).items():
                if value is not None and id(value) not in seen:
                    seen.add(id(value))
                    yield (f"{prefix}.{name}" if prefix else name), value

    def named_parameters(self, recurse=True):
        """(name, parameter), each parameter once: "layers.0.weight"."""
        return self._named("_parameters", recurse)

    def parameters(self, recurse=True):
        """The parameters, each once."""
        return (p for _, p in self.named_parameters(recurse))

    def named_buffers(self, recurse=True):
        """(name, buffer)."""
        return self._named("_buffers", recurse)

    def buffers(self, recurse=True):
        """The buffers."""
        return (b for _, b in self.named_buffers(recurse))

    # State.

    def _entries(self):
        for prefix, module in self.named_modules(memo=set()):
            temporary = module.__dict__.get("_temporary", ())
            for kind in ("_parameters", "_buffers"):
                for name, value in getattr(module, kind).items():
                    if value is not None and name not in temporary:
                        yield (f"{prefix}.{name}" if prefix else name), value

    def state_dict(self):
        """{name: tensor} of parameters and persistent buffers, over the same storage."""
        return {name: value.detach() for name, value in self._entries()}

    def load_state_dict(self, state, strict=True):
        """Copies values in. RuntimeError, before anything is changed, for a wrong shape and, if strict, for names that are
        missing or unknown."""
        own = dict(self._entries())
        missing, unknown = [n for n in own if n not in state], [n for n in state if n not in own]
        wrong = [f"{n} has shape {tuple(state[n].shape)} and should have {tuple(own[n].shape)}"
                 for n in own if n in state and tuple(state[n].shape) != tuple(own[n].shape)]
        if strict:
            wrong = [f"{n} is missing" for n in missing] + [f"{n} is unknown" for n in unknown] + wrong
        if wrong:
            raise RuntimeError(f"load_state_dict of {type(self).__name__}: {'; '.join(wrong)}")
        for name, value in own.items():
            if name in state:
                value.data.copy_(state[name].detach())
        return missing, unknown

    def apply(self, function):
        """Calls function(module) for all inside and this one."""
        for m in self.children():
            m.apply(function)
        function(self)
        return self

    def _convert(self, change):
        for m in self.modules():
            for p in m._parameters.values():
                if p is not None:
                    gradient = p.grad
                    p.data = _C.as_parameter(change(p.data))
                    if gradient is not None:
                        p.grad = change(gradient)
            for name, b in m._buffers.items():
                if b is not None:
                    m._buffers[name] = change(b)
        return self

    def to(self, *args, **kwargs):
        """All parameters and buffers on another device, or those of floats with another dtype; this same module."""
        def change(x):
            if x.is_floating_point():
                return x.to(*args, **kwargs)
            moves = [a for a in args if isinstance(a, (str, _C.device))]
            device = kwargs.get("device", moves[0] if moves else None)
            return x if device is None else x.to(device)
        return self._convert(change)

    def cpu(self):
        """All on the CPU."""
        return self._convert(lambda x: x.cpu())

    def cuda(self, device=0):
        """All on a card."""
        return self._convert(lambda x: x.cuda(device))

    def float(self):
        """Floats as float32."""
        return self.to(_C.float32)

    def double(self):
        """Floats as float64."""
        return self.to(_C.float64)

    def half(self):
        """Floats as float16."""
        return self.to(_C.float16)

    def bfloat16(self):
        """Floats as bfloat16."""
        return self.to(_C.bfloat16)

    def train(self, mode=True):
        """Training mode for all inside: dropout is on."""
        for m in self.modules():
            object.__setattr__(m, "training", bool(mode))
        return self

    def eval(self):
        """train(False)."""
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        """Whether the parameters require gradients."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        """Clears the gradients: to None, or to zeros."""
        for p in self.parameters():
            if p.grad is not None:
                if set_to_none:
                    p.grad = None
                else:
                    p.grad.zero_()

    # Text.

    def extra_repr(self):
        """What stands between the brackets of the module's line."""
        return ""

    def __repr__(self):
        inside = [f"({n}): " + repr(m).replace("\n", "\n  ") for n, m in self.named_children()]
        extra = self.extra_repr()
        if not inside:
            return f"{type(self).__name__}({extra})"
        return f"{type(self).__name__}({extra}\n  " + "\n  ".join(inside) + "\n)"
