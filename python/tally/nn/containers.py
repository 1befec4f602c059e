"""Modules and parameters in lists and by name."""
from .module import Module


class ModuleList(Module):
    """Modules by number, listed as "0", "1" ..."""

    def __init__(self, modules=()):
        super().__init__()
        self.extend(modules)

    def append(self, module):
        """One more at the end."""
        self._modules[str(len(self))] = module
        return self

    def extend(self, modules):
        """Several more."""
        for m in modules:
            self.append(m)
        return self

    def insert(self, index, module):
        """One more before `index`."""
        rest = list(self)
        rest.insert(index, module)
        self._modules.clear()
        self.extend(rest)

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def _key(self, index):
        n = len(self)
        if not -n <= index < n:
            raise IndexError(f"{type(self).__name__}: index {index} among {n} modules")
        return str(index % n)

    def __getitem__(self, index):
        if isinstance(index, slice):
            part = type(self)()
            for m in list(self)[index]:
                part._modules[str(len(part))] = m
            return part
        return self._modules[self._key(index)]

    def __setitem__(self, index, module):
        self._modules[self._key(index)] = module


class Sequential(ModuleList):
    """Modules that run one after the other."""

    def __init__(self, *modules):
        super().__init__(modules)

    def forward(self, x):
        for m in self:
            x = m(x)
        return x


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules=()):
        super().__init__()
        for name, m in dict(modules).items():
            self[name] = m

    def __getitem__(self, name):
        return self._modules[name]

    def __setitem__(self, name, module):
        self._modules[name] = module

    def __contains__(self, name):
        return name in self._modules

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def keys(self):
        """The names."""
        return self._modules.keys()

    def values(self):
        """The modules."""
        return self._modules.values()

    def items(self):
        """(name, module) pairs."""
        return self._modules.items()


class ParameterList(Module):
    """Parameters by number."""

    def __init__(self, parameters=()):
        super().__init__()
        for p in parameters:
            self.append(p)

    def append(self, parameter):
        """One more at the end."""
        self.register_parameter(str(len(self)), parameter)
        return self

    def __len__(self):
        return len(self._parameters)

    def __iter__(self):
        return iter(self._parameters.values())

    def __getitem__(self, index):
        return list(self._parameters.values())[index]
