"""TensorRT: what a user reaches as ``opforge.tensorrt``.

``build(model, "net.engine")`` makes an engine in which nodes of ours run as the standard operators of their bodies or
by plugins; ``register()`` makes the plugins known in every process that reads a model or an engine; ``prepare(model)``
writes a model for TensorRT's own parser, ``check(model)`` says before that what it would not find;
``write_plugins(folder)`` writes the plugins in C++.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from opforge.engines.tensorrt import _prepare, _register
from opforge.engines.tensorrt._build import Precision, Profile, build
from opforge.engines.tensorrt._engine import Loaded
from opforge.engines.tensorrt._modules import import_plugin, import_tensorrt
from opforge.engines.tensorrt._names import PluginId, plugin_id
from opforge.engines.tensorrt._prepare import Plugins, Route

if TYPE_CHECKING:
    import onnx

    from opforge.build.library import LoadedLibrary
    from opforge.onnx.checker import Problem
    from opforge.schema import Operator

__all__ = [
    "PluginId",
    "Precision",
    "Profile",
    "Route",
    "build",
    "check",
    "load",
    "plugin_id",
    "prepare",
    "register",
    "register_quick",
    "write_plugins",
]


def register(
    *operators: Operator,
    library: str | Path | LoadedLibrary | None = None,
    workspace: Mapping[str, int] | None = None,
) -> list[PluginId]:
    """Register plugins with TensorRT, in this process: before a model is read, and before an engine is loaded.

    Args:
        *operators: the operators; none = every registered one that has CUDA kernels, in its newest version.
        library: with their CUDA kernels, as ``opforge build`` makes one; None = they are built when first needed.
        workspace: bytes of workspace by operator key (``domain::Name:version``), for kernels that ask for more memory
            than their tensors have.

    Returns:
        Name, version and namespace of each plugin, which TensorRT looks it up by.

    Raises:
        ModuleNotFoundError: TensorRT is not installed.
        UnsupportedError: the size of an output depends on data.
        ArgumentError: another plugin has that name.
    """
    return _register.register(import_tensorrt(), operators, library=library, workspace=workspace)


def register_quick(*operators: Operator) -> list[PluginId]:
    """Register plugins by TensorRT's decorators (``tensorrt.plugin``), whose kernels go into engines as PTX.

    An engine with them needs no library of ours, no Python and no registration where it runs. Formula operators only;
    attributes become constants of the kernel, and an output may have up to 2**31 - 1 elements. Building needs nvcc.
    Networks are made with ``NetworkDefinitionCreationFlag.PREFER_AOT_PYTHON_PLUGINS``.

    Args:
        *operators: formula operators; none = every registered one.

    Raises:
        ModuleNotFoundError: TensorRT is not installed.
        UnsupportedError: this TensorRT has no such decorators, or an operator cannot be such a plugin.
    """
    from opforge.engines.tensorrt._ptx import compile_ptx
    from opforge.engines.tensorrt._quick import register_quick as registered

    trt = import_tensorrt()
    chosen = operators or [operator for operator in _register.every() if operator.is_formula]
    return registered(trt, import_plugin(trt), chosen, compile_ptx=compile_ptx)


def prepare(
    model: str | os.PathLike[str] | onnx.ModelProto, *, route: Route = "auto", plugins: Plugins = "classes"
) -> onnx.ModelProto:
    """Return a copy of a model that TensorRT's parser reads, also that of ``trtexec``; needs no TensorRT.

    The parser finds plugins by name, version and namespace, which nodes must state; it does not look at domains, knows
    no absent inputs, narrows integers to 32 bits and joins lists of texts. Functions are put in the place of their
    calls, for it finds those without their domain too.

    Args:
        model: the model, or its file.
        route: "auto" (a formula's body where TensorRT knows its operators, which it fuses with their neighbours; a
            plugin otherwise), "plugins" (our kernels wherever there are any) or "bodies" (no plugins at all).
        plugins: "classes" are those of `register` and of the C++ sources, "decorators" those of `register_quick`.

    Raises:
        MissingOperatorError: nodes have neither a registered operator nor a body; all are listed.
        UnsupportedError: nodes that TensorRT would not find anything for; all are listed.
        ArgumentError: nodes do not fit their operators.
    """
    return _prepare.prepare(_path(model), route=route, plugins=plugins)


def check(
    model: str | os.PathLike[str] | onnx.ModelProto, *, route: Route = "auto", creators: bool | None = None
) -> list[Problem]:
    """Return what TensorRT would have no meaning for, instead of its "Plugin not found": an empty list is good.

    Found are custom nodes that do not fit their operators or have none, operators that can be neither body nor plugin,
    standard operators that the parser does not know, and, with TensorRT, plugins that are not registered under the
    name, version and namespace that the prepared model states (with those under which they are).

    Args:
        model: the model, or its file; prepared or not.
        route: as of `prepare`.
        creators: whether to look into TensorRT's registry; None = where it is installed.
    """
    if creators is None:
        from opforge.engines.tensorrt._modules import version

        creators = version() is not None
    return _prepare.check(_path(model), route=route, trt=import_tensorrt() if creators else None)


def load(path: str | os.PathLike[str]) -> Loaded:
    """Load an engine, with the plugins of all registered operators.

    Raises:
        CorruptFileError: TensorRT does not take it.
        UnsupportedError: there is no GPU.
    """
    from opforge.engines.tensorrt._engine import load_engine

    return load_engine(import_tensorrt(), Path(path).read_bytes(), str(path))


def write_plugins(folder: str | os.PathLike[str], *operators: Operator, name: str, library: str = "") -> list[Path]:
    """Write plugins in C++ for those who have TensorRT's headers: a .cpp that needs nothing of ours, and a .cmake.

    The library that it becomes takes its kernels from a kernel library with CUDA kernels in its own folder, which
    ``opforge build PACKAGE --device cuda`` makes, and from those in the folders of ``OPFORGE_LIBRARY_PATH``. It exports
    what ``trtexec --dynamicPlugins`` and ``IPluginRegistry::loadLibrary`` look up. Engines and prepared models are the
    same as those of `register`.

    Args:
        folder: where to; it is made if need be.
        *operators: none = every registered one that has CUDA kernels.
        name: of the package, an identifier: ``<name>_tensorrt.cpp`` and ``<name>_tensorrt.cmake`` are written.
        library: file name of the kernel library; ``<name>_cuda.so`` where it is not given.

    Raises:
        ArgumentError: no operator can be a plugin, or a name is none.
    """
    from opforge.engines.tensorrt._emit import write_plugins as written

    return written(folder, operators or _register.every(), name=name, library=library)


def _path(model: str | os.PathLike[str] | onnx.ModelProto) -> Path | onnx.ModelProto:
    return Path(model) if isinstance(model, str | os.PathLike) else model
