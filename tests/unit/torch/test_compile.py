"""Compiled and exported graphs: fake kernels against real ones, opcheck, aot_eager, inductor, export, decomposition."""

import os
import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import opforge.torch
from opforge.frameworks.torch import _decompose, all_entries
from opforge.ops import clip_sigmoid, custom_gelu, mish, mod_sigmoid, sparse_matmul, swish


@pytest.fixture(autouse=True)
def fresh_compiler():
    yield
    torch.compiler.reset()


def csr(dtype=torch.float32):
    """A 3x4 matrix with an empty row and unsorted columns."""
    return torch.randn(3, dtype=dtype), torch.tensor([2, 0, 1]), torch.tensor([0, 2, 2, 3])


def calls(hand):
    """One call of each kind, with inputs of every layout."""
    x = torch.randn(3, 4)
    values, indices, indptr = csr()
    return {
        "formula": (custom_gelu, (x,)),
        "transposed": (custom_gelu, (x.t(),)),
        "sliced": (custom_gelu, (torch.randn(6, 9)[::2, 1:5],)),
        "expanded": (custom_gelu, (x[:1].expand(5, 4),)),
        "broadcast": (mod_sigmoid, (x, torch.randn(3, 1))),
        "outer": (mod_sigmoid, (torch.randn(5, 1, 4), torch.randn(6, 1))),
        "zero rank": (mod_sigmoid, (torch.tensor(1.0), torch.tensor(0.5))),
        "empty": (mod_sigmoid, (torch.empty(0, 4), torch.randn(4))),
        "half": (custom_gelu, (x.half(),)),
        "kernel": (sparse_matmul, (values, indices, indptr, torch.randn(4, 5).t().contiguous().t())),
        "several outputs": (hand.total, ([x, x],)),
        "variadic": (hand.plus, ([x, x, x],)),
        "variadic output": (hand.spread, (x, [x, x])),
        "optional output": (hand.add_offset_grad, (x[0], x[1])),
        "optional absent": (hand.add_bias, (x,)),
        "optional present": (hand.add_bias, (x, torch.randn(4))),
        "fixed dtype": (hand.attributes, (x,)),
    }


def test_fake_kernels_agree_with_real_ones(hand):
    for name, (call, arguments) in calls(hand).items():
        real = torch.utils._pytree.tree_leaves(call(*arguments))
        with FakeTensorMode() as mode:
            fakes = torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, arguments)
            fake = torch.utils._pytree.tree_leaves(call(*fakes))
        for r, f in zip(real, fake, strict=True):
            got = (f.shape, f.stride(), f.dtype, f.device, f.storage_offset())
            assert got == (r.shape, r.stride(), r.dtype, r.device, r.storage_offset()), name


def test_fake_kernels_raise_what_real_ones_raise(hand):
    with FakeTensorMode() as mode:
        a, b = mode.from_tensor(torch.ones(2, 4)), mode.from_tensor(torch.ones(3))
        with pytest.raises((RuntimeError, ValueError), match=r"(?s)MulRows, argument b: dimension 0 is wrong"):
            hand.mul_rows(a, b)
        with pytest.raises((RuntimeError, ValueError, TypeError), match="wrong dtype"):
            hand.gelu(mode.from_tensor(torch.ones(2, dtype=torch.int32)))


def test_opcheck_of_every_kind(hand):
    x = torch.randn(3, 4, requires_grad=True)
    values, indices, indptr = csr()
    values.requires_grad_()
    dense = torch.randn(4, 2, requires_grad=True)
    opforge.torch.register(mod_sigmoid)
    example = torch.ops.com_example
    cases = [
        (hand.gelu, (x,)),
        (hand.gelu_grad, (torch.randn(3, 4, requires_grad=True), x)),
        (hand.gelu_grad_grad, (torch.randn(3, 4), torch.randn(3, 4), x.detach())),
        (hand.mul_rows, (x, torch.randn(4, requires_grad=True))),
        (hand.add_bias, (x,)),
        (hand.add_bias, (x, torch.randn(4, requires_grad=True))),
        (hand.total, ([x.detach(), x.detach()],)),
        (hand.plus, ([x, x],)),
        (hand.spread, (x.detach(), [x.detach(), x.detach()])),
        (hand.add_offset, (x[0].detach().requires_grad_(), torch.randn(2, requires_grad=True))),
        (hand.attributes, (x.detach(),)),
        (hand.take, (torch.ones(3), torch.tensor([0, 2]))),
        (hand.nonzero, (torch.tensor([0.0, 1.0]),)),
        (example.custom_gelu, (x.t(),)),
        (example.mod_sigmoid, (x, torch.randn(3, 1, requires_grad=True))),
        (example.mod_sigmoid_grad, (torch.randn(3, 4), x, torch.randn(4, requires_grad=True))),
        (example.clip_sigmoid, (x,)),
        (example.sparse_matmul, (values, indices, indptr, dense)),
    ]
    for operator, arguments in cases:
        result = torch.library.opcheck(operator.default, arguments, raise_exception=False)
        assert set(result.values()) == {"SUCCESS"}, (operator, result)


def network(x, threshold, values, indices, indptr, dense):
    y = custom_gelu(x * 2) + mish(x) + swish(x)
    z = mod_sigmoid(y, threshold) * clip_sigmoid(x, lo=0.2)
    return z.sum() + sparse_matmul(values, indices, indptr, dense).pow(2).sum()


def leaves(n):
    torch.manual_seed(n)
    values, indices, indptr = csr()
    tensors = [torch.randn(3, n), torch.tensor(0.1), values, indices, indptr, torch.randn(4, n)]
    return [t.requires_grad_() if t.is_floating_point() else t for t in tensors]


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_without_graph_break(dynamic):
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for n in (4, 7, 1):
        tensors = leaves(n)
        floats = [t for t in tensors if t.requires_grad]
        eager, traced = network(*tensors), compiled(*tensors)
        torch.testing.assert_close(traced, eager)
        expected, got = torch.autograd.grad(eager, floats), torch.autograd.grad(traced, floats)
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one, other)


def test_an_operator_may_be_called_for_the_first_time_inside_a_compiled_function():
    code = (
        "import torch\nfrom opforge.ops import custom_gelu\n"
        "f = torch.compile(lambda x: custom_gelu(x) + 1, fullgraph=True, backend='aot_eager')\n"
        "x = torch.randn(3)\n"
        "torch.testing.assert_close(f(x), torch.nn.functional.gelu(x, approximate='tanh') + 1)\n"
        "print('same')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "same", done.stderr[-3000:]


@pytest.mark.compiler
@pytest.mark.parametrize("decompose", [True, False])
def test_inductor(decompose):
    from torch._inductor.utils import run_and_get_code

    before = opforge.torch.options.decompose
    opforge.torch.options.decompose = decompose
    try:
        x, threshold = torch.randn(5, 33, requires_grad=True), torch.randn(33, requires_grad=True)

        def chain(x, threshold):
            return mod_sigmoid(custom_gelu(x * 2), threshold) * x

        eager = chain(x, threshold)
        got, code = run_and_get_code(torch.compile(chain, fullgraph=True), x, threshold)
        torch.testing.assert_close(got, eager)
        weights = torch.randn(5, 33)
        expected = torch.autograd.grad(eager, (x, threshold), weights)
        for one, other in zip(torch.autograd.grad(got, (x, threshold), weights), expected, strict=True):
            torch.testing.assert_close(one, other)
        assert ("torch.ops.com_example.custom_gelu" in "".join(code)) is not decompose
    finally:
        opforge.torch.options.decompose = before


def test_only_inductor_decomposes():
    """Another backend and exported graphs keep the operator."""
    opforge.torch.register(custom_gelu)
    import torch._inductor.decomposition as table

    assert torch.ops.com_example.custom_gelu.default in table.select_decomp_table() or not _decompose.enabled()
    graphs = []
    from torch._dynamo.backends.common import aot_autograd

    def keep(graph, _):
        graphs.append(str(graph.graph))
        return graph

    torch.compile(custom_gelu, fullgraph=True, backend=aot_autograd(fw_compiler=keep))(torch.randn(3))
    assert "com_example.custom_gelu.default" in graphs[0]


def test_compile_caches_depend_on_the_switch_and_the_formulas():
    opforge.torch.register(custom_gelu)
    before = opforge.torch.options.decompose
    tags = []
    try:
        for value in (True, False, True):
            opforge.torch.options.decompose = value
            tags.append(torch.compiler.config.cache_key_tag)
        assert tags[0] == tags[2] != tags[1]
        known = dict(_decompose._meanings)
        _decompose._meanings["com.example::CustomGELU:1"] = "another formula"
        _decompose.refresh()
        assert torch.compiler.config.cache_key_tag != tags[0]
        _decompose._meanings.update(known)
    finally:
        opforge.torch.options.decompose = before


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_decompositions_compute_what_the_kernels_do(hand, dtype):
    rtol, atol = {torch.float64: (1e-12, 1e-14), torch.float32: (1e-5, 1e-6)}.get(dtype, (2e-2, 1e-3))
    generator = torch.Generator().manual_seed(3)
    for operator in (custom_gelu, clip_sigmoid, mish, swish, mod_sigmoid):
        opforge.torch.register(operator)
    entries = [e for e in all_entries() if e.overload in _decompose._known and not e.key.startswith("test.")]
    assert len(entries) >= 15  # each operator with its first and second derivative
    for entry in entries:
        shapes = [(4, 6), (6,), (4, 1), (1,), (4, 6)]
        inputs = [
            torch.randn(s, generator=generator).to(dtype) for s, _ in zip(shapes, entry.signature.inputs, strict=False)
        ]
        real = entry.overload(*inputs)
        decomposed = _decompose._known[entry.overload](*inputs)
        for r, d in zip(*((v if isinstance(v, tuple) else (v,)) for v in (real, decomposed)), strict=True):
            torch.testing.assert_close(d, r, rtol=rtol, atol=atol, msg=lambda text, key=entry.key: f"{key}: {text}")
            assert d.stride() == r.stride()


def test_export_with_dynamic_shapes_saves_and_loads(tmp_path):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.activation = opforge.torch.Module(custom_gelu)
            self.threshold = torch.nn.Parameter(torch.tensor(0.2))

        def forward(self, x, values, indices, indptr, dense):
            y = mod_sigmoid(self.activation(x), self.threshold)
            return clip_sigmoid(y, hi=0.8), sparse_matmul(values, indices, indptr, dense)

    model, (values, indices, indptr) = Model(), csr()
    rows, entries, bounds = (torch.export.Dim(n, min=m) for n, m in (("rows", 2), ("entries", 2), ("bounds", 3)))
    shapes = ({0: rows}, {0: entries}, {0: entries}, {0: bounds}, None)
    arguments = (torch.randn(5, 4), values, indices, indptr, torch.randn(4, 6))
    program = torch.export.export(model, arguments, dynamic_shapes=shapes)
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    names = ("custom_gelu", "mod_sigmoid", "clip_sigmoid", "sparse_matmul")
    assert [t for t in targets if "com_example" in t] == [f"com_example.{n}.default" for n in names]
    path = tmp_path / "model.pt2"
    torch.export.save(program, path)
    loaded = torch.export.load(path).module()
    other = (torch.randn(9, 4), torch.randn(2), torch.tensor([3, 1]), torch.tensor([0, 1, 1, 2, 2]), arguments[4])
    for got, expected in zip(loaded(*other), model(*other), strict=True):
        torch.testing.assert_close(got, expected)


def test_compiled_autograd():
    from torch._dynamo import compiled_autograd

    tensors = leaves(4)
    floats = [t for t in tensors if t.requires_grad]
    expected = torch.autograd.grad(network(*tensors), floats)
    with compiled_autograd._enable(torch.compile(backend="aot_eager", fullgraph=True)):
        network(*tensors).backward()
    for tensor, other in zip(floats, expected, strict=True):
        torch.testing.assert_close(tensor.grad, other)


def test_autocast_under_compile():
    x, threshold = torch.randn(4, 4), torch.tensor(0.5, dtype=torch.bfloat16)

    def half(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return mod_sigmoid(x @ x, threshold)

    compiled = torch.compile(half, fullgraph=True, backend="aot_eager")
    assert compiled(x).dtype == torch.bfloat16
    torch.testing.assert_close(compiled(x), half(x))


def test_compiled_functions_with_functorch():
    x = torch.randn(5, 3)

    def f(x):
        return torch.vmap(torch.func.grad(lambda row: custom_gelu(row).sum()))(x)

    torch.testing.assert_close(torch.compile(f, fullgraph=True, backend="aot_eager")(x), f(x))


def test_the_environment_names_the_route():
    assert opforge.torch.route() == os.environ["OPFORGE_TORCH_ROUTE"]


def test_a_decomposed_float_attribute_is_a_float32_value():
    from opforge.frameworks.torch import _calls, _decompose
    from opforge.ops import swish

    x = torch.linspace(-3, 3, 9, dtype=torch.float64)
    decomposed = _decompose._known[_calls.register(swish)]
    # 1.702 is no float32 value: taken as it is, results differ by 1e-7.
    torch.testing.assert_close(decomposed(x, beta=1.702), swish(x, beta=1.702), rtol=1e-14, atol=1e-15)
