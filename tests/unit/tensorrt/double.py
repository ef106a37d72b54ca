"""A stand-in for the package tensorrt: its classes by their documented names, and what its ONNX parser does with nodes.

It follows the parser's source: nodes are looked up by operator without domain, fields are what the creator declares
and the node has, integers become 32 bits, texts end in a zero. An engine is the model and the plugins' fields; it runs
standard operators by ONNX's reference, and plugins on host memory, which the CUDA emulator takes for a device's.
"""

import enum
import json
import sys
import types

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

__version__ = "10.13.0.35"

BUILT_IN = set(
    """
    Add Mul Relu Mish Erf Div Cast CastLike Constant Identity Sigmoid Tanh Sub Exp Pow Sqrt Softplus Where Clip Less
    Greater Max Min MatMul Neg
    """.split()
)


class DataType(enum.IntEnum):
    FLOAT, HALF, INT8, INT32, BOOL, UINT8, FP8, BF16, INT64 = range(9)


class TensorFormat(enum.IntEnum):
    LINEAR, CHW2, HWC8 = range(3)


class PluginFieldType(enum.IntEnum):
    FLOAT16, FLOAT32, FLOAT64, INT8, INT16, INT32, CHAR, DIMS, UNKNOWN, BF16, INT64 = range(11)


class TensorRTPhase(enum.IntEnum):
    BUILD, RUNTIME = range(2)


class TensorIOMode(enum.IntEnum):
    NONE, INPUT, OUTPUT = range(3)


class BuilderFlag(enum.IntEnum):
    FP16, BF16 = range(2)


class NetworkDefinitionCreationFlag(enum.IntEnum):
    STRONGLY_TYPED = 1


class MemoryPoolType(enum.IntEnum):
    WORKSPACE = 0


class DimensionOperation(enum.Enum):
    SUM, PROD, MAX, MIN, SUB, EQUAL, LESS, FLOOR_DIV, CEIL_DIV = range(9)


class ILogger:
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)


class IPluginV3: ...


class IPluginV3OneCore: ...


class IPluginV3OneBuild: ...


class IPluginV3OneRuntime: ...


class IPluginCreatorV3One: ...


class IProfiler: ...


class PluginField:
    def __init__(self, name="", data=None, type=PluginFieldType.UNKNOWN):
        self.name, self.data, self.type = name, data, type
        self.size = 0 if data is None else len(data)


PluginFieldCollection = list


class DimsExprs(list):
    def __init__(self, given):
        super().__init__([None] * given if isinstance(given, int) else given)


class Expression:
    """A number, or a formula over named sizes that is computed later."""

    def __init__(self, compute, constant=None):
        self.compute, self.constant = compute, constant

    def is_constant(self):
        return self.constant is not None

    def get_constant_value(self):
        return self.constant if self.constant is not None else -(2**63)


class IExprBuilder:
    def constant(self, value):
        return Expression(lambda sizes: value, value)

    def operation(self, op, first, second):
        name = {
            "SUM": lambda a, b: a + b, "PROD": lambda a, b: a * b, "SUB": lambda a, b: a - b, "MAX": max, "MIN": min,
            "EQUAL": lambda a, b: int(a == b), "LESS": lambda a, b: int(a < b), "FLOOR_DIV": lambda a, b: a // b,
            "CEIL_DIV": lambda a, b: -(-a // b),
        }[op.name]  # fmt: skip
        if first.is_constant() and second.is_constant():
            return self.constant(name(first.constant, second.constant))
        return Expression(lambda sizes: name(first.compute(sizes), second.compute(sizes)))

    def size(self, name):
        return Expression(lambda sizes: sizes[name])


class PluginTensorDesc:
    def __init__(self, dims=(), type=DataType.FLOAT, format=TensorFormat.LINEAR):
        self.dims, self.type, self.format, self.scale = tuple(dims), type, format, -1.0


class DynamicPluginTensorDesc:
    def __init__(self, dims=(), type=DataType.FLOAT, format=TensorFormat.LINEAR, high=None):
        self.desc = PluginTensorDesc(dims, type, format)
        self.min = self.opt = self.max = tuple(high if high is not None else dims)


class Registry:
    def __init__(self):
        self.creators = {}

    @property
    def all_creators(self):
        return list(self.creators.values())

    def register_creator(self, creator, namespace=""):
        key = (creator.name, creator.plugin_version, namespace)
        return key not in self.creators and not self.creators.update({key: creator})

    def get_creator(self, name, version, namespace=""):
        return self.creators.get((name, version, namespace))


_registry = Registry()


def get_plugin_registry():
    return _registry


def load_fields(node, names):
    """Fields of a node as the parser makes them."""
    given = {attribute.name: attribute for attribute in node.attribute}
    fields, text = [], PluginFieldType.CHAR
    for name in names:
        if name not in given:
            continue
        one = given[name]
        if one.type == onnx.AttributeProto.FLOAT:
            fields.append(PluginField(name, np.array([one.f], np.float32), PluginFieldType.FLOAT32))
        elif one.type == onnx.AttributeProto.INT:
            fields.append(PluginField(name, np.array([one.i]).astype(np.int32), PluginFieldType.INT32))
        elif one.type == onnx.AttributeProto.STRING:
            fields.append(PluginField(name, np.frombuffer(one.s + b"\0", np.int8), text))
        elif one.type == onnx.AttributeProto.FLOATS:
            fields.append(PluginField(name, np.array(one.floats, np.float32), PluginFieldType.FLOAT32))
        elif one.type == onnx.AttributeProto.INTS:
            fields.append(PluginField(name, np.array(one.ints).astype(np.int32), PluginFieldType.INT32))
        elif one.type == onnx.AttributeProto.STRINGS:
            fields.append(PluginField(name, np.frombuffer(b"".join(s + b"\0" for s in one.strings), np.int8), text))
    return fields


ONNX_TYPES = {1: DataType.FLOAT, 10: DataType.HALF, 3: DataType.INT8, 6: DataType.INT32, 9: DataType.BOOL,
              2: DataType.UINT8, 16: DataType.BF16, 7: DataType.INT64}  # fmt: skip


class Tensor:
    def __init__(self, name, shape):
        self.name, self.shape = name, shape


class Network:
    def __init__(self):
        self.model, self.plugins, self.marked = None, {}, []

    num_inputs = property(lambda self: len(self.inputs))

    def get_input(self, k):
        return self.inputs[k]

    @property
    def inputs(self):
        return [
            Tensor(i.name, tuple(d.dim_value if d.HasField("dim_value") else -1 for d in i.type.tensor_type.shape.dim))
            for i in self.model.graph.input
        ]

    num_layers = property(lambda self: len(self.model.graph.node))

    def get_layer(self, k):
        node = self.model.graph.node[k]
        return types.SimpleNamespace(
            num_outputs=len(node.output), get_output=lambda j: Tensor(node.output[j], ()), name=node.name
        )

    def mark_output(self, tensor):
        self.marked.append(tensor.name)


class OnnxParser:
    def __init__(self, network, logger):
        self.network, self.errors = network, []

    num_errors = property(lambda self: len(self.errors))

    def get_error(self, k):
        return self.errors[k]

    def parse(self, data):
        model = self.network.model = onnx.ModelProto.FromString(data)
        local = {function.name for function in model.functions}
        for node in model.graph.node:
            if node.op_type in BUILT_IN or node.op_type in local:
                continue
            texts = {a.name: a.s.decode() for a in node.attribute if a.type == onnx.AttributeProto.STRING}
            version, namespace = texts.get("plugin_version", "1"), texts.get("plugin_namespace", "")
            creator = _registry.get_creator(node.op_type, version, namespace)
            if creator is None:
                self.errors.append("Plugin not found, are the plugin name, version, and namespace correct?")
                continue
            fields = load_fields(node, [one.name for one in creator.field_names])
            plugin = creator.create_plugin(node.name, PluginFieldCollection(fields), TensorRTPhase.BUILD)
            self.network.plugins[node.output[0]] = plugin
        return not self.errors


class Builder:
    def __init__(self, logger):
        self.logger = logger

    def create_network(self, flags):
        self.flags = flags
        return Network()

    def create_builder_config(self):
        config = types.SimpleNamespace(flags=[], profiles=[], limits={})
        config.set_flag = config.flags.append
        config.add_optimization_profile = config.profiles.append
        config.set_memory_pool_limit = config.limits.__setitem__
        return config

    def create_optimization_profile(self):
        shapes = {}
        return types.SimpleNamespace(shapes=shapes, set_shape=lambda name, *three: shapes.update({name: three}))

    def build_serialized_network(self, network, config):
        """Types and formats of every plugin as in an engine with halves allowed: one combination per first dtype."""
        shaped = onnx.shape_inference.infer_shapes(network.model)
        held = {v.name: v.type.tensor_type.elem_type for v in (*shaped.graph.input, *shaped.graph.value_info)}
        held |= {t.name: t.data_type for t in shaped.graph.initializer}
        rows = []
        for node in network.model.graph.node:
            plugin = network.plugins.get(node.output[0])
            if plugin is None:
                continue
            try:
                inputs = [ONNX_TYPES[held.get(name, 1)] for name in node.input]
                outputs = plugin.get_output_data_types(inputs)
                descs = [DynamicPluginTensorDesc((), one) for one in (*inputs, *outputs)]
                supported = [plugin.supports_format_combination(p, descs, len(inputs)) for p in range(len(descs))]
                if not all(supported):
                    self.logger.log(ILogger.ERROR, f"no supported formats for {node.op_type}")
                    return None
            except Exception as error:  # TensorRT catches what leaves a plugin
                self.logger.log(ILogger.ERROR, f"Exception caught: {error}")
                return None
            held |= dict.fromkeys(node.output, 1)
            fields = [
                (one.name, int(one.type), np.asarray(one.data).dtype.name, np.asarray(one.data).tolist())
                for one in plugin.get_fields_to_serialize()
            ]
            key = (plugin.plugin_name, plugin.plugin_version, plugin.plugin_namespace)
            rows.append([node.output[0], key, fields])
        profiles = [{n: [list(s) for s in three] for n, three in p.shapes.items()} for p in config.profiles]
        head = {"plugins": rows, "profiles": profiles, "marked": network.marked}
        return json.dumps(head).encode() + b"\0" + network.model.SerializeToString()


class Runtime:
    def __init__(self, logger):
        self.logger = logger

    def deserialize_cuda_engine(self, data):
        head, _, body = bytes(data).partition(b"\0")
        try:
            held = json.loads(head)
            model = onnx.ModelProto.FromString(body)
        except Exception:
            self.logger.log(ILogger.ERROR, "Serialization assertion magicTagRead == kMAGIC_TAG failed.")
            return None
        plugins = {}
        for output, key, rows in held["plugins"]:
            creator = _registry.get_creator(*key)
            if creator is None:
                text = f"getPluginCreator could not find plugin: {key[0]} version: {key[1]} namespace: {key[2]}"
                self.logger.log(ILogger.ERROR, text)
                return None
            fields = [PluginField(n, np.array(v, d), PluginFieldType(k)) for n, k, d, v in rows]
            try:
                plugin = creator.create_plugin("", PluginFieldCollection(fields), TensorRTPhase.RUNTIME)
            except Exception as error:
                self.logger.log(ILogger.ERROR, f"Exception caught in create_plugin(): {error}")
                return None
            plugins[output] = plugin.attach_to_context(None)
        return Engine(model, plugins, held)


class Engine:
    def __init__(self, model, plugins, head):
        self.model, self.plugins, self.profiles = model, plugins, head["profiles"]
        self.names = [i.name for i in model.graph.input]
        self.results = [o.name for o in model.graph.output] + head["marked"]
        self.types = {v.name: v.type.tensor_type for v in (*model.graph.input, *model.graph.output)}

    num_io_tensors = property(lambda self: len(self.names) + len(self.results))
    num_optimization_profiles = property(lambda self: len(self.profiles))

    def get_tensor_profile_shape(self, name, k):
        return self.profiles[k][name]

    def get_tensor_name(self, k):
        return [*self.names, *self.results][k]

    def get_tensor_mode(self, name):
        return TensorIOMode.INPUT if name in self.names else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name):
        return ONNX_TYPES[self.types[name].elem_type] if name in self.types else DataType.FLOAT

    def get_tensor_shape(self, name):
        dims = self.types[name].shape.dim if name in self.types else []
        return tuple(d.dim_value if d.HasField("dim_value") else -1 for d in dims)

    def create_execution_context(self):
        return Context(self)


class Context:
    def __init__(self, engine):
        self.engine, self.shapes, self.addresses, self.profiler = engine, {}, {}, None

    def set_input_shape(self, name, shape):
        declared = self.engine.get_tensor_shape(name)
        if len(shape) != len(declared) or any(d not in (-1, s) for d, s in zip(declared, shape, strict=True)):
            return False
        for profile in self.engine.profiles:
            low, _, high = profile.get(name, (shape, shape, shape))
            if any(not a <= s <= b for a, s, b in zip(low, shape, high, strict=True)):
                return False
        self.shapes[name] = shape
        return True

    def set_tensor_address(self, name, address):
        self.addresses[name] = address
        return True

    def get_tensor_shape(self, name):
        return self._values(dry=True)[name].shape

    def execute_async_v3(self, stream):
        try:
            values = self._values(dry=False)
        except Exception as error:
            print(f"Exception caught in enqueue(): {error}", file=sys.stderr)
            return False
        for name in self.engine.results:
            _view(self.addresses[name], values[name].shape, values[name].dtype)[...] = values[name]
        return True

    def _values(self, dry):
        engine, values = self.engine, {}
        for name in engine.names:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(engine.types[name].elem_type)
            shape = self.shapes[name]
            values[name] = np.ones(shape, dtype) if dry else _view(self.addresses[name], shape, dtype).copy()
        values |= {t.name: numpy_helper.to_array(t) for t in engine.model.graph.initializer}
        for node in engine.model.graph.node:
            if node.output[0] in engine.plugins:
                found = run_plugin(engine.plugins[node.output[0]], [values[n] for n in node.input], dry)
            else:
                single = onnx.helper.make_model(
                    onnx.helper.make_graph(
                        [node], "one", [onnx.helper.make_tensor_value_info(n, 0, None) for n in node.input],
                        [onnx.helper.make_tensor_value_info(n, 0, None) for n in node.output],
                    ), opset_imports=engine.model.opset_import,
                )  # fmt: skip
                found = ReferenceEvaluator(single).run(None, {n: values[n] for n in node.input})
            values |= dict(zip(node.output, found, strict=True))
            if self.profiler is not None and not dry:
                self.profiler.report_layer_time(node.name or node.output[0], 0.001)
        return values


def _view(address, shape, dtype):
    import ctypes

    size = max(int(np.prod(shape)) * np.dtype(dtype).itemsize, 1)
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype, int(np.prod(shape))).reshape(shape)


NUMPY = {DataType.FLOAT: "float32", DataType.HALF: "float16", DataType.INT32: "int32", DataType.INT64: "int64",
         DataType.BOOL: "bool", DataType.INT8: "int8", DataType.UINT8: "uint8"}  # fmt: skip


def output_shapes(plugin, shapes, fixed=()):
    """Shapes of a plugin's outputs for inputs of these shapes, by its expressions over sizes that it does not know.

    ``fixed`` are places (input, axis) whose size is a constant in the network.
    """
    builder, sizes = IExprBuilder(), {}
    inputs = []
    for k, shape in enumerate(shapes):
        dims = []
        for axis, size in enumerate(shape):
            sizes[k, axis] = size
            dims.append(builder.constant(size) if (k, axis) in fixed else builder.size((k, axis)))
        inputs.append(DimsExprs(dims))
    made = plugin.get_output_shapes(inputs, [], builder)
    return [tuple(dim.compute(sizes) for dim in one) for one in made]


def run_plugin(plugin, arrays, dry=False):
    """Run a plugin as an engine does: types, shapes by its expressions, workspace, then the launch."""
    kinds = {np.dtype(v): k for k, v in NUMPY.items()}
    shapes = output_shapes(plugin, [a.shape for a in arrays])
    types_in = [kinds[a.dtype] for a in arrays]
    types_out = plugin.get_output_data_types(types_in)
    results = [np.full(s, 7, NUMPY[t]) for s, t in zip(shapes, types_out, strict=True)]
    if dry:
        return results
    ins = [PluginTensorDesc(a.shape, t) for a, t in zip(arrays, types_in, strict=True)]
    outs = [PluginTensorDesc(a.shape, t) for a, t in zip(results, types_out, strict=True)]
    wide = [[DynamicPluginTensorDesc(d.dims, d.type) for d in row] for row in (ins, outs)]
    memory = np.zeros(max(plugin.get_workspace_size(*wide), 1), np.uint8)
    plugin.on_shape_change(ins, outs)
    held = [np.ascontiguousarray(a) for a in arrays]
    plugin.enqueue(
        ins, outs, [a.ctypes.data for a in held], [a.ctypes.data for a in results], memory.ctypes.data, 0
    )  # fmt: skip
    return results
