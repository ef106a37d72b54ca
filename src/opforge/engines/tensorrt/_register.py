"""Creators of our plugins in TensorRT's registry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from opforge.engines.tensorrt._kernels import data_dependent, has_cuda, provide
from opforge.engines.tensorrt._names import PluginId, plugin_id
from opforge.engines.tensorrt._plugin import plugin_classes
from opforge.errors import ArgumentError, UnsupportedError
from opforge.schema import discover, registry

if TYPE_CHECKING:
    from pathlib import Path

    from opforge.build.library import LoadedLibrary
    from opforge.schema import Operator

__all__ = ["every", "register", "registered", "registered_ids"]

# By TensorRT's module and the plugin's identity; the registry keeps pointers to creators, which must stay.
_creators: dict[tuple[int, PluginId], tuple[Operator, Any]] = {}


def register(
    trt: Any,  # noqa: ANN401 - TensorRT's module
    operators: Iterable[Operator],
    *,
    library: str | Path | LoadedLibrary | None = None,
    workspace: Mapping[str, int] | None = None,
) -> list[PluginId]:
    """Register the plugins of operators; see `opforge.tensorrt.register`."""
    if library is not None:
        provide(library)
    chosen = list(operators) or every()
    made = []
    for operator in chosen:
        if data_dependent(operator):
            raise UnsupportedError(
                "a plugin cannot have outputs whose size depends on data",
                where=operator.key,
                expected="sizes that follow from the inputs' sizes",
                got=str(operator.signature),
            )
        made.append(_register_one(trt, operator, dict(workspace or {})))
    return made


def every() -> list[Operator]:
    """Return the registered operators that can be plugins, the newest version of each."""
    discover()
    return [one for one in registry.operators().values() if has_cuda(one) and not data_dependent(one)]


def _register_one(trt: Any, operator: Operator, asked: Mapping[str, int]) -> PluginId:  # noqa: ANN401
    name = plugin_id(operator)
    before = _creators.get((id(trt), name))
    if before is not None:
        if before[0].schema_hash != operator.schema_hash:
            raise ArgumentError(
                "another operator of this name is registered with TensorRT",
                where=operator.key,
                expected=str(before[0].signature),
                got=str(operator.signature),
                hint="raise since= for a changed operator, or restart the process",
            )
        before[1].asked = {**before[1].asked, **asked}
        return name
    creator = plugin_classes(trt)[1](operator, asked)
    if not trt.get_plugin_registry().register_creator(creator, name.namespace):
        raise ArgumentError(
            "TensorRT has another plugin of this name",
            where=operator.key,
            expected=f"no other creator of {name}",
            got=", ".join(map(str, registered_ids(trt, name.name))),
        )
    _creators[id(trt), name] = (operator, creator)
    return name


def registered(trt: Any, name: PluginId) -> bool:  # noqa: ANN401
    """Whether TensorRT finds a creator of exactly this name, version and namespace."""
    return trt.get_plugin_registry().get_creator(name.name, name.version, name.namespace) is not None


def registered_ids(trt: Any, name: str = "") -> list[PluginId]:  # noqa: ANN401
    """Return the creators that TensorRT has, or those of one name."""
    found = []
    for creator in trt.get_plugin_registry().all_creators:
        own = str(creator.name)
        if not name or own == name:
            found.append(PluginId(own, str(creator.plugin_version), str(creator.plugin_namespace)))
    return found
