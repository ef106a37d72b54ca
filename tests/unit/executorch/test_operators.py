"""Every operator of the library in every dtype, and networks with formulas and a kernel operator."""

import numpy as np
import pytest
import torch

import opforge as of
import opforge.executorch
import opforge.torch
from opforge.frameworks.torch._arrays import to_numpy, to_tensor
from opforge.ops import custom_gelu, mod_sigmoid, sparse_matmul
from opforge.verify._rows import choices, held, label
from opforge.verify.cases import arrays, cases_of
from opforge.verify.hosts import Host

pytestmark = pytest.mark.compiler
OPERATORS = [operator for operator in of.load("opforge.ops") if not operator.is_gradient]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_every_dtype_against_the_reference(operator, lowered):
    """One program holds the operator in all its dtypes, on the first case that has elements."""
    all_types = list(choices(operator))
    case = next(c for c in cases_of(operator) if all(a.size for a in arrays(operator, c, all_types[0])))
    rows = [[np.ascontiguousarray(a) for a in arrays(operator, case, types)] for types in all_types]
    tensors = [to_tensor(array) for row in rows for array in row]
    step = len(rows[0])

    def every(*given):
        return tuple(operator(*given[k : k + step], **case.attributes) for k in range(0, len(given), step))

    results = iter(lowered(every, *tensors).execute(tensors))
    for types, inputs in zip(all_types, rows, strict=True):
        found = [to_numpy(next(results)) for _ in operator.signature.outputs]
        host = Host("executorch", lambda *_, found=found: found, lambda *_: [])
        row = held(operator, host, case, case.name, inputs, types, "engine")
        assert row.passed, (label(types), row.detail)
    assert next(results, None) is None


class Network(torch.nn.Module):
    """A linear layer and a sparse one, with formulas behind them."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.norm = torch.nn.BatchNorm1d(16)
        self.gelu = opforge.torch.Module(custom_gelu)
        rows = [torch.arange(k % 3, 16, 3) for k in range(4)]
        self.register_buffer("indices", torch.cat(rows))
        self.register_buffer("indptr", torch.tensor([0, *np.cumsum([len(row) for row in rows])]))
        self.values = torch.nn.Parameter(torch.randn(len(self.indices)))
        self.threshold = torch.nn.Parameter(torch.randn(4, 1))

    def forward(self, x):
        hidden = self.gelu(self.norm(self.first(x)))
        return mod_sigmoid(sparse_matmul(self.values, self.indices, self.indptr, hidden.t()), self.threshold)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    made = Network()
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        made(torch.randn(6, 8)).square().mean().backward()
        optimizer.step()
    return made.eval()


def test_a_trained_network_with_a_formula_and_a_sparse_product(network, tmp_path):
    path, n = tmp_path / "net.pte", torch.export.Dim("n", min=1, max=32)
    made = of.executorch.lower(
        network, (torch.randn(3, 8),), path, dynamic_shapes=({0: n},), input_names=["x"], output_names=["y"]
    )
    assert path.read_bytes() == made
    session = of.executorch.session(path)
    assert [i.name for i in session.inputs] == ["x"] and session.outputs == ["y"]
    assert {"com_example::custom_gelu.out", "com_example::sparse_matmul.out"} <= set(session.operators)
    for rows in (1, 5, 32):
        x = torch.randn(rows, 8)
        (y,) = session.run({"x": x.numpy()}).values()
        np.testing.assert_allclose(y, network(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_an_exported_program_and_its_decompositions_keep_the_operators(network, tmp_path):
    program = torch.export.export(network, (torch.randn(3, 8),))
    before = str(program.graph)
    for k, one in enumerate((program, program.run_decompositions())):
        of.executorch.lower(one, path=tmp_path / f"{k}.pte")
        session = of.executorch.session(tmp_path / f"{k}.pte")
        assert "com_example::mod_sigmoid.out" in session.operators
        x = torch.randn(3, 8)
        torch.testing.assert_close(session.execute([x])[0], network(x), rtol=1e-5, atol=1e-6)
    assert str(program.graph) == before, "the caller's program stays as it is"


def test_a_step_of_training_is_lowered_with_its_gradient_operators(tmp_path):
    """What ExecuTorch trains with on a device: one graph of a loss and its gradients."""
    from torch.export.experimental import _export_forward_backward

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 4)
            self.threshold = torch.nn.Parameter(torch.randn(4))

        def forward(self, x):
            return mod_sigmoid(custom_gelu(self.linear(x)), self.threshold).square().mean()

    model, x = Loss(), torch.randn(5, 3)
    joint = _export_forward_backward(torch.export.export(model, (x,)))
    of.executorch.lower(joint, path=tmp_path / "step.pte")
    session = of.executorch.session(tmp_path / "step.pte")
    assert {"com_example::custom_gelu_grad.out", "com_example::mod_sigmoid_grad.out"} <= set(session.operators)
    loss = model(x)
    loss.backward()
    expected = [loss, model.threshold.grad, model.linear.weight.grad, model.linear.bias.grad]
    got = session.execute([x])
    assert len(got) >= len(expected)
    for one in expected:
        assert any(g.shape == one.shape and torch.allclose(g, one, rtol=1e-4, atol=1e-6) for g in got)


def test_a_model_in_half_precision(lowered):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), opforge.torch.Module(custom_gelu)).half().eval()
    x = torch.randn(3, 4).half()
    torch.testing.assert_close(lowered(model, x).execute([x])[0], model(x), rtol=2e-3, atol=2e-3)
