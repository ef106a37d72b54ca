"""What one test does in a process of its own, since a failure inside TensorRT may end it.  run.py WHAT [FILES]"""

import sys
import types
from pathlib import Path

import numpy as np
import tensorrt_rtx_bindings as trt


class Log(trt.ILogger):
    def __init__(self):
        trt.ILogger.__init__(self)

    def log(self, severity, text):
        print(text, flush=True)


def fields(trt, **values):
    kinds = {float: (np.float32, trt.PluginFieldType.FLOAT32), int: (np.int32, trt.PluginFieldType.INT32)}
    made = [trt.PluginField(k, np.array([v], kinds[type(v)][0]), kinds[type(v)][1]) for k, v in values.items()]
    return trt.PluginFieldCollection(made)


def python_plugins():
    from opforge.engines.tensorrt import _kernels
    from opforge.engines.tensorrt._register import register, registered_ids
    from tests.unit.tensorrt.conftest import emulated, gate

    _kernels.provide(emulated())
    (name,) = register(trt, [gate])
    print([str(one) for one in registered_ids(trt, name.name)])
    creator = trt.get_plugin_registry().get_creator(name.name, name.version, name.namespace)
    print([(one.name, one.type.name) for one in creator.field_names])
    plugin = creator.create_plugin("g", fields(trt, slope=0.25), trt.TensorRTPhase.BUILD)
    print(plugin.plugin_name, plugin.plugin_namespace, plugin.num_outputs, plugin.content.text)
    kept = plugin.get_fields_to_serialize()
    again = creator.create_plugin("g", kept, trt.TensorRTPhase.RUNTIME)
    print(again.content == plugin.content, [str(one) for one in again.get_output_data_types([trt.float16] * 2)])
    descs = [trt.DynamicPluginTensorDesc() for _ in range(3)]
    for one in descs:
        one.desc.type, one.desc.format = trt.float16, trt.TensorFormat.LINEAR
    print([plugin.supports_format_combination(k, descs, 2) for k in range(3)])
    descs[2].desc.type = trt.float32
    print([plugin.supports_format_combination(k, descs, 2) for k in range(3)])
    try:
        creator.create_plugin("g", fields(trt, slop=0.25), trt.TensorRTPhase.BUILD)
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])


def cpp_plugins(library):
    registry = trt.get_plugin_registry()
    print(registry.load_library(library) is not None)
    creator = registry.get_creator("test_trt_Gate", "1", "test.trt")
    print(creator.name, creator.plugin_version, creator.plugin_namespace)
    print([(one.name, one.type.name) for one in creator.field_names])
    plugin = creator.create_plugin("g", fields(trt, slope=0.25), trt.TensorRTPhase.BUILD)
    core = plugin.get_capability_interface(trt.PluginCapabilityType.CORE)
    print(core.plugin_name, core.plugin_version, core.plugin_namespace)
    print(creator.create_plugin("g", fields(trt, slop=0.25), trt.TensorRTPhase.BUILD))


def parse(model, *library):
    log = Log()
    builder = trt.Builder(log)
    for one in library:
        trt.get_plugin_registry().load_library(one)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, log)
    print("parsed", parser.parse(Path(model).read_bytes()))
    print([parser.get_error(k).desc() for k in range(parser.num_errors)])
    if parser.num_errors == 0:
        made = builder.build_serialized_network(network, builder.create_builder_config())
        print("engine", made is not None and made.nbytes > 0)


def decorators():
    """NVIDIA's own tensorrt.plugin over what the other packages have; PTX is compiled by whoever uses it."""
    import importlib.util

    import tensorrt_lean_bindings as lean

    made = types.ModuleType("tensorrt")
    for source in (lean, trt):
        made.__dict__.update({k: v for k, v in source.__dict__.items() if not k.startswith("__")})
    made.__version__ = trt.__version__
    sys.modules["tensorrt"] = made
    folder = Path(importlib.util.find_spec("tensorrt_bindings").submodule_search_locations[0]) / "plugin"
    spec = importlib.util.spec_from_file_location(
        "tensorrt.plugin", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["tensorrt.plugin"] = module
    made.plugin = module
    spec.loader.exec_module(module)
    from opforge.engines.tensorrt._quick import register_quick
    from tests.unit.tensorrt.conftest import gate

    (name,) = register_quick(made, module, [gate], compile_ptx=lambda source: source)
    print(name)
    creator = trt.get_plugin_registry().get_creator(name.name, name.version, name.namespace)
    print([(one.name, one.type.name) for one in creator.field_names])
    definition = module._lib.QDP_REGISTRY[f"{name.namespace}::{name.name}"]
    print(definition.input_tensor_names, {k: v.__name__ for k, v in definition.input_attrs.items()})
    print(definition.aot_impl_attr_names, definition.autotune_func is not None)
    (combination,) = definition.autotune_func(None, None, (None,))
    print(len(combination._get_combinations()), [str(one) for one in combination._get_combinations()[0].types])


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
