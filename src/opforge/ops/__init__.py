"""The operator library: one folder per operator, found by existing.

``opforge.ops.custom_gelu`` is the operator itself; its module is ``opforge.ops.custom_gelu.op``.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from opforge.schema import Operator

__all__: list[str] = []

# Importing a folder binds its name to the package; afterwards the operator of that name takes its place, as a
# user means the operator.
for _folder in sorted(info.name for info in pkgutil.iter_modules(__path__) if info.ispkg):
    _module = import_module(f"{__name__}.{_folder}.op")
    for _name in _module.__all__:
        _value = getattr(_module, _name)
        if isinstance(_value, Operator):
            globals()[_name] = _value
            __all__.append(_name)
