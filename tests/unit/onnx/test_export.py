"""Export from torch: domain, imports, attributes, shapes, bodies, metadata, both exporters."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
import torch

import opforge as of
from opforge.errors import ExportError
from opforge.ops import custom_gelu, mod_sigmoid, sparse_matmul, swish

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 8)
        self.threshold = torch.nn.Parameter(torch.linspace(-1, 1, 8))

    def forward(self, x):
        return swish(mod_sigmoid(custom_gelu(self.linear(x)), self.threshold), beta=2.5)


def ort(model, inputs):
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def custom(model):
    return {n.op_type: n for n in model.graph.node if n.domain}


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
def test_model_is_complete_and_runs_unmodified(tmp_path, dynamo):
    net = Net()
    path = tmp_path / "net.onnx"
    shapes = ({0: torch.export.Dim("batch")},) if dynamo else {"x": {0: "batch"}}
    model = of.torch.export(
        net, (torch.randn(4, 6),), path, dynamic_shapes=shapes, input_names=["x"], output_names=["y"], dynamo=dynamo
    )
    assert onnx.load(str(path)) == model
    onnx.checker.check_model(model, full_check=True)
    nodes = custom(model)
    assert {name: n.domain for name, n in nodes.items()} == {
        "CustomGELU": "com.example",
        "ModSigmoid": "com.example",
        "Swish": "org.opforge",
    }
    imports = {i.domain: i.version for i in model.opset_import}
    assert imports == {"": imports[""], "com.example": 1, "org.opforge": 1}
    assert [(a.name, a.type, a.f) for a in nodes["Swish"].attribute] == [("beta", onnx.AttributeProto.FLOAT, 2.5)]
    assert {f.name for f in model.functions} == set(nodes)
    assert all(imports[""] == i.version for f in model.functions for i in f.opset_import)
    dims = {
        i.name: [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim]
        for i in (*model.graph.value_info, *model.graph.output)
    }
    for node in nodes.values():
        assert dims[node.output[0]] == ["batch", 8]
    rows = json.loads({p.key: p.value for p in model.metadata_props}["opforge.operators"])
    assert {(r["domain"], r["name"], r["version"], r["schema_hash"]) for r in rows} == {
        (o.domain, o.name, o.since_version, o.schema_hash) for o in (custom_gelu, mod_sigmoid, swish)
    }
    for n in (1, 7):
        x = torch.randn(n, 6)
        np.testing.assert_allclose(ort(model, {"x": x.numpy()})[0], net(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_sparse_matmul_exports_with_its_body():
    class Sparse(torch.nn.Module):
        def forward(self, values, indices, indptr, dense):
            return sparse_matmul(values, indices, indptr, dense)

    matrix = (torch.rand(6, 8) < 0.4) * torch.randn(6, 8)
    csr = matrix.to_sparse_csr()
    args = (csr.values().clone(), csr.col_indices().clone(), csr.crow_indices().clone(), torch.randn(8, 3))
    names = ["values", "indices", "indptr", "dense"]
    dim = torch.export.Dim
    e, p = dim("e", min=2), dim("p", min=3)
    model = of.torch.export(Sparse(), args, dynamic_shapes=({0: e}, {0: e}, {0: p}, None), input_names=names)
    assert list(custom(model)) == ["SparseMatMul"]
    out = [d.dim_param or d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim]
    assert out[1] == 3 and "p" in str(out[0])
    got = ort(model, {n: a.numpy() for n, a in zip(names, args, strict=True)})[0]
    np.testing.assert_allclose(got, (matrix @ args[3]).numpy(), rtol=1e-5, atol=1e-6)


def test_what_torch_cannot_export_is_our_error(tmp_path):
    class Bad(torch.nn.Module):
        def forward(self, x):
            return x + 1 if float(x.sum()) > 0 else x

    path = tmp_path / "bad.onnx"
    with pytest.raises(ExportError, match="Bad: torch cannot export this module"):
        of.torch.export(Bad(), (torch.ones(2),), path)
    assert not path.exists()


def test_training_mode_comes_back():
    net = Net().train()
    of.torch.export(net, (torch.randn(2, 6),))
    assert net.training


def test_an_output_may_be_called_like_an_inner_value():
    class Words(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(5, 4)

        def forward(self, ids):
            return custom_gelu(self.table(ids)) * 2

    net, ids = Words(), torch.tensor([[1, 2]])
    model = of.torch.export(net, (ids,), input_names=["ids"], output_names=["embedding"])
    assert [o.name for o in model.graph.output] == ["embedding"]
    np.testing.assert_allclose(ort(model, {"ids": ids.numpy()})[0], net(ids).detach().numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(ExportError, match="more output_names than the model has outputs"):
        of.torch.export(net, (ids,), output_names=["a", "b"])
    with pytest.raises(ExportError, match="would have one name"):
        of.torch.export(net, (ids,), input_names=["a"], output_names=["a"])


def test_the_size_of_a_model_is_known_without_asking_protobuf():
    """Protobuf raises where a message does not fit; weights are counted before it is asked."""
    from opforge.onnx._write import fits_one_message

    model = onnx.ModelProto()
    model.graph.initializer.add(name="w", data_type=onnx.TensorProto.FLOAT, dims=[1024, 1024, 512])
    assert not fits_one_message(model)
    model.graph.initializer[0].data_type = onnx.TensorProto.INT8
    assert fits_one_message(model)
    model.graph.initializer[0].dims[0] = 4096
    assert not fits_one_message(model)
    model.graph.initializer[0].external_data.add(key="location", value="w.data")
    assert fits_one_message(model)


def test_models_beyond_one_message_keep_their_tensors_beside_them(tmp_path, monkeypatch):
    from opforge.onnx import _write

    model = of.torch.export(torch.nn.Linear(64, 64), (torch.randn(2, 64),), input_names=["x"])
    before = model.SerializeToString()
    monkeypatch.setattr(_write, "_PROTOBUF_LIMIT", 100)
    for _ in range(2):
        _write.write_model(model, tmp_path / "big.onnx")
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names[0] == "big.onnx" and names[1].endswith(".data") and len(names) == 2
    assert model.SerializeToString() == before
    assert len(onnx.load(str(tmp_path / "big.onnx")).graph.initializer) == len(model.graph.initializer)
    monkeypatch.setattr(onnx, "save_model", lambda *a, **k: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        _write.write_model(model, tmp_path / "big.onnx")
    assert sorted(p.name for p in tmp_path.iterdir()) == names


def test_two_writers_of_one_model_leave_one_that_is_whole(tmp_path):
    """Each removes the tensors of earlier models, and must not take those of the other's."""
    from opforge.onnx._write import write_with_data

    path = tmp_path / "net.onnx"

    def write(value):
        for _ in range(20):
            model = onnx.ModelProto(ir_version=9)
            model.graph.initializer.add(name="w", data_type=onnx.TensorProto.FLOAT, dims=[2])
            write_with_data(model, path, {"w": np.full(2, value, np.float32).tobytes()})
        return value

    with ThreadPoolExecutor(6) as pool:
        values = list(pool.map(write, range(6)))
    (weight,) = onnx.load(path).graph.initializer
    kept = onnx.numpy_helper.to_array(weight)
    assert kept[0] == kept[1] and kept[0] in values
    assert len(list(tmp_path.iterdir())) == 2


def test_an_exporter_that_is_not_installed_is_named(monkeypatch):
    def missing(*arguments):
        raise ModuleNotFoundError("No module named 'onnxscript'", name="onnxscript")

    monkeypatch.setattr("opforge.onnx.export_torch._export_dynamo", missing)
    with pytest.raises(ExportError, match=r"(?s)onnxscript.*to do: pip install 'opforge\[torch\]'"):
        of.torch.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))


def _ramps():
    """Three operators of one domain: two versions of Ramp, and one that came with version 2."""

    @of.formula("test.onnx.versions::Ramp")
    def ramp(x):
        return of.relu(x)

    @of.formula("test.onnx.versions::Ramp", since=2)
    def leaky(x):
        return of.where(x < 0, 0.25 * x, x)

    @of.formula("test.onnx.versions::Tripled", since=2)
    def tripled(x):
        return 3 * x

    return ramp, leaky, tripled


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
def test_a_domain_is_imported_in_the_version_of_the_operators_in_the_model(monkeypatch, dynamo):
    """That newer ones are declared, and known to PyTorch, does not make nodes mean them."""
    monkeypatch.setenv("OPFORGE_JIT", "off")
    ramp, leaky, tripled = _ramps()
    x = torch.tensor([[-2.0, 3.0]])
    for operator in (ramp, leaky, tripled):
        of.torch.register(operator)
    for operator, version in ((ramp, 1), (leaky, 2), (tripled, 2)):
        module = of.torch.Module(operator)
        model = of.torch.export(module, (x,), input_names=["x"], output_names=["y"], dynamo=dynamo)
        assert {item.domain: item.version for item in model.opset_import}["test.onnx.versions"] == version
        np.testing.assert_array_equal(ort(model, {"x": x.numpy()})[0], operator(x).numpy())


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
def test_nodes_of_several_versions_are_refused(monkeypatch, dynamo):
    monkeypatch.setenv("OPFORGE_JIT", "off")
    ramp, leaky, tripled = _ramps()

    class Two(torch.nn.Module):
        def __init__(self, other):
            super().__init__()
            self.other = other

        def forward(self, x):
            return ramp(x) + self.other(x)

    for other in (leaky, tripled):
        with pytest.raises(ExportError) as raised:
            of.torch.export(Two(other), (torch.ones(1, 2),), dynamo=dynamo)
        text = str(raised.value)
        assert "Two: a model of ONNX imports a domain in one version, and these operators want several" in text
        assert "expected: test.onnx.versions::Ramp in version 1" in text
        assert f"got: version 2 of test.onnx.versions, because of {other.key}; there Ramp is version 2" in text
