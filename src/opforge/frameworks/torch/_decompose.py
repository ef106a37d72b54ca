"""Decomposition of formula operators under inductor, so that they fuse with their neighbours.

The decompositions go into inductor's own table only: graphs that ``torch.export`` or another backend makes keep the
operator as it is. Inductor is not imported for this; where it comes later, a hook on its import fills the table.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import json
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from opforge import __version__
from opforge.frameworks.torch._options import options
from opforge.schema import registry

if TYPE_CHECKING:
    from opforge.frameworks.torch._entries import Entry

__all__ = ["enabled", "refresh", "register"]

_TABLE: Final = "torch._inductor.decomposition"
# Measured (docs/design/torch.md): fused into its neighbours a formula saves their passes over memory; alone, our
# kernel is the faster one, but a graph with nothing else in it is not what people compile.
_AUTO: Final = True
_MARK: Final = ";opforge-formulas="

_known: dict[Any, Callable[..., Any]] = {}
_meanings: dict[str, str] = {}  # operator -> hash of its formula


def enabled() -> bool:
    """Whether formula operators decompose under inductor now."""
    return _AUTO if options.decompose == "auto" else bool(options.decompose)


def register(entry: Entry) -> None:
    """Note the operator's decomposition, if it is declared by a formula in this process."""
    if not entry.is_formula:
        return
    domain, _, rest = entry.key.partition("::")
    name, _, version = rest.rpartition(":")
    operator = registry.find(domain, name, int(version))
    if operator is None or operator.formula is None or operator.key != entry.key:
        return
    formula: Any = operator.formula
    made: list[Callable[..., Any]] = []
    declared = {attribute.name: attribute for attribute in operator.signature.attributes}

    def decomposed(*tensors: Any, **attributes: Any) -> Any:  # noqa: ANN401
        if not made:  # programs of second derivatives are made when a graph has them
            from opforge.codegen.torch_decomposition import decomposition

            made.append(decomposition(formula))
        # A float attribute is a float32 value everywhere; a symbolic one is left as it is.
        known = {name: declared[name].coerce(v) if isinstance(v, float) else v for name, v in attributes.items()}
        return made[0](*tensors, **known)

    _known[entry.overload] = decomposed
    if not operator.is_gradient:
        _meanings[entry.key] = operator.schema_hash
        _tag()
    if _TABLE in sys.modules:
        _fill(sys.modules[_TABLE])
    else:
        _install_hook()


def refresh() -> None:
    """Bring inductor's table in line with the switch; what is compiled in this process is forgotten."""
    _tag()
    if _TABLE in sys.modules:
        _fill(sys.modules[_TABLE])
        import torch

        torch.compiler.reset()


def _tag() -> None:
    """Let the keys of PyTorch's compile caches depend on the switch and on the formulas.

    A graph in those caches names operators only, so without this a changed formula or switch would be answered with
    code that was made from the old one.
    """
    import torch

    if not hasattr(torch.compiler.config, "cache_key_tag"):
        return
    meaning = "off"
    if enabled():
        content = json.dumps([__version__, sorted(_meanings.items())])
        meaning = hashlib.sha256(content.encode()).hexdigest()[:16]
    own = torch.compiler.config.cache_key_tag.partition(_MARK)[0]
    torch.compiler.config.cache_key_tag = f"{own}{_MARK}{meaning}"


def _fill(module: ModuleType) -> None:
    # select_decomp_table() gives the first of these or a cached copy of it.
    tables = [getattr(module, "decompositions", {})]
    cached = getattr(module, "fast_random_decomps", None)
    if cached is not None:
        tables.append(cached())
    for table in tables:
        for overload, function in _known.items():
            if enabled():
                table[overload] = function
            else:
                table.pop(overload, None)


class _Hook(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Fills the table right after inductor's module has been imported."""

    def __init__(self) -> None:
        self._spec: importlib.machinery.ModuleSpec | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the module as everybody else does, and load it through this object."""
        if fullname != _TABLE:
            return None
        sys.meta_path.remove(self)
        self._spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if self._spec is None or self._spec.loader is None:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=self._spec.origin)
        spec.has_location = True
        spec.cached = self._spec.cached
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Use the default."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's own code, then fill its table."""
        assert self._spec is not None
        assert self._spec.loader is not None
        self._spec.loader.exec_module(module)
        _fill(module)


_hook: Final = _Hook()


def _install_hook() -> None:
    if _hook not in sys.meta_path:
        sys.meta_path.insert(0, _hook)
