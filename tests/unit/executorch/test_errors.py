"""What goes wrong with files and operators, and the words for it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import opforge as of
import opforge.executorch
from opforge.build import load_library
from opforge.engines.executorch import _adapter, engines
from opforge.errors import (
    ArgumentError,
    BuildError,
    CorruptFileError,
    DtypeError,
    ExportError,
    ToolchainError,
    UnsupportedError,
)
from opforge.ops import custom_gelu

pytestmark = pytest.mark.compiler
SOURCE = Path(__file__).parents[3] / "src"


class Calls(torch.nn.Module):
    def __init__(self, overload, **attributes):
        super().__init__()
        self.overload, self.attributes = overload, attributes

    def forward(self, *tensors):
        return self.overload(*tensors, **self.attributes)


@pytest.fixture(scope="module")
def crafted(hand, hand_library, tmp_path_factory):
    """crafted(operator, schema, result, *tensors): a session of a file in which one of ours is called otherwise."""
    library = torch.library.Library("crafted", "FRAGMENT")
    operators = load_library(hand_library).operators
    folder, count = tmp_path_factory.mktemp("crafted"), iter(range(1000))

    def make(operator, schema, result, *tensors, **attributes):
        from executorch.exir import EdgeCompileConfig, to_edge

        name = f"op{next(count)}"
        library.define(f"{name}({schema}) -> Tensor")
        library.define(f"{name}.out({schema}, {'' if '*' in schema else '*, '}Tensor(a!) out) -> Tensor(a!)")
        for overload in (name, f"{name}.out"):
            library.impl(overload, lambda x, *_, out=None, **__: result(x), "CompositeExplicitAutograd")
        overload = getattr(torch.ops.crafted, name).default
        program = torch.export.export(Calls(overload, **attributes), tensors)
        edge = to_edge(program, compile_config=EdgeCompileConfig(_check_ir_validity=False))
        path = folder / f"{name}.pte"
        path.write_bytes(edge.to_executorch().buffer)
        _adapter.adapter().define(operators[f"test.hand::{operator}:1"].address, f"crafted::{name}.out")
        return of.executorch.session(path)

    return make


def test_a_wrong_attribute_is_named(crafted):
    x = torch.ones(3)
    session = crafted("Chunks", "Tensor x, *, str grain", lambda x: x.new_ones(3), x, grain="7")
    with pytest.raises(DtypeError, match=r"(?s)Chunks, attribute grain: wrong attribute type.*expected: int.*string"):
        session.execute([x])
    session = crafted("Chunks", "Tensor x", lambda x: x.new_ones(3), x)
    with pytest.raises(DtypeError, match=r"(?s)Chunks, attribute grain: wrong attribute type.*got: a tensor"):
        session.execute([x])
    session = crafted("MulRowsGradGrad", "Tensor x", lambda x: x.new_ones(3), x)
    with pytest.raises(ArgumentError, match=r"(?s)MulRowsGradGrad: wrong number of arguments.*expected: 8.*got: 3"):
        session.execute([x])
    session = crafted("Plus", "Tensor x", lambda x: x.new_ones(3), x)
    with pytest.raises(ArgumentError, match=r"(?s)argument xs: wrong kind of argument.*a list of tensors.*a tensor"):
        session.execute([x])


def test_shapes_that_contradict_are_named(crafted):
    a, b = torch.ones(2, 4), torch.ones(3)
    session = crafted("MulRows", "Tensor a, Tensor b", lambda x: x.new_ones(2, 4), a, b)
    with pytest.raises(ArgumentError, match=r"(?s)MulRows, argument b: dimension 0 is wrong.*n = 4.*got: 3"):
        session.execute([a, b])
    assert session.inputs[0].name == "input0" and session.inputs[0].shape == (2, 4), "the file says no names"


def test_outputs_that_do_not_fit_are_named(crafted):
    x = torch.ones(2, 4)
    session = crafted("Gelu", "Tensor x", lambda x: x.new_ones(2, 3), x)
    with pytest.raises(ArgumentError, match=r"(?s)Gelu, output 0: the output does not fit.*\[2, 3\].*\[2, 4\]"):
        session.execute([x])
    session = crafted("Gelu", "Tensor x", lambda x: x.new_ones(8), x)
    with pytest.raises(ArgumentError, match=r"(?s)Gelu, output 0: the output does not fit.*\[8\].*\[2, 4\]"):
        session.execute([x])
    session = crafted("Gelu", "Tensor x", lambda x: x.new_ones(2, 4, dtype=torch.float64), x)
    with pytest.raises(DtypeError, match=r"(?s)Gelu, output 0: the file gives the output another dtype.*f32.*Double"):
        session.execute([x])


def test_dtypes_without_a_kernel_are_named(crafted, hand, lowered):
    x = torch.ones(3, dtype=torch.int32)
    with pytest.raises(ExportError, match=r"(?s)torch cannot export this module.*wrong dtype"):
        lowered(hand.gelu, x)
    session = crafted("Gelu", "Tensor x", lambda x: x.new_ones(3), x)
    with pytest.raises(DtypeError, match=r"(?s)test.hand::Gelu, argument x: wrong dtype.*f32, f64.*i32"):
        session.execute([x])


def test_a_file_that_is_cut_off_or_none_is_refused(tmp_path):
    whole = of.executorch.lower(Calls(custom_gelu), (torch.ones(64, 8),))
    path = tmp_path / "cut.pte"
    for size in (0, 3, 8, 40, len(whole) // 4, len(whole) // 2, len(whole) * 3 // 4):
        path.write_bytes(whole[:size])
        with pytest.raises(CorruptFileError, match=r"cut\.pte: (not a \.pte|the file is cut off|ExecuTorch cannot)"):
            of.executorch.session(path)
    path.write_bytes(b"\x08\0\0\0ONNX" + bytes(64))
    with pytest.raises(CorruptFileError, match=r"(?s)not a .pte.*ET12.*ONNX"):
        of.executorch.session(path)
    path.write_bytes(whole)
    with pytest.raises(ArgumentError, match=r"(?s)no method 'train'.*expected: forward"):
        of.executorch.session(path, method="train")


def test_operators_that_nobody_provides_are_named(hand, tmp_path):
    path = tmp_path / "hand.pte"
    of.executorch.lower(Calls(hand.mul_rows), (torch.ones(2, 3), torch.ones(3)), path)
    code = f"import opforge.executorch; opforge.executorch.session({str(path)!r})"
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{os.environ['PYTHONPATH']}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "MissingOperatorError" in done.stderr and "got: test_hand::mul_rows.out" in done.stderr


def test_a_file_of_another_declaration_is_refused(tmp_path):
    from opforge.schema import registry

    first = of.formula("test.executorch::Gate")(lambda x, *, gain=2.0: x * gain)
    path = tmp_path / "gate.pte"
    of.executorch.lower(Calls(first), (torch.ones(3),), path)
    said = path.read_bytes()
    text = first.schema_hash.encode()
    assert said.count(text) == 1
    path.write_bytes(said.replace(text, text[::-1]))
    with pytest.raises(ArgumentError, match=r"(?s)another declaration of an operator.*test.executorch::Gate"):
        of.executorch.session(path)
    registry.unregister(first)


def test_a_dimension_without_a_bound_is_refused(lowered):
    with pytest.raises(ExportError, match=r"(?s)tensors_0, dimension 0: a dynamic dimension has no upper bound.*max="):
        lowered(custom_gelu, torch.ones(3, 2), dynamic=({0: torch.export.Dim("n")},))


def test_optional_outputs_are_refused(hand):
    program = torch.export.export(Calls(hand.add_offset_grad), (torch.ones(3), torch.ones(2)))
    with pytest.raises(UnsupportedError, match=r"(?s)AddOffsetGrad: ExecuTorch knows no absent outputs.*grad_offset"):
        of.executorch.lower(program)


def test_inputs_by_name(lowered):
    session = lowered(custom_gelu, torch.ones(3, 2))
    x = np.ones((3, 2), np.float32)
    with pytest.raises(ArgumentError, match=r"(?s)there is no such input.*tensors_0.*'y'"):
        session.run({"tensors_0": x, "y": x})
    with pytest.raises(ArgumentError, match=r"(?s)inputs are missing.*nothing for 'tensors_0'"):
        session.run({})
    with pytest.raises(ArgumentError, match=r"(?s)input 'tensors_0': .*the wrong shape.*float32\[3, 2\].*\[2, 3\]"):
        session.run({"tensors_0": x.T})


def test_an_executorch_that_does_not_serve_says_why(monkeypatch):
    (engine,) = engines
    monkeypatch.setattr(_adapter, "version", lambda: "1.2.0")
    state = engine.availability()
    assert not state.ok and state.reason == "version 1.2.0 is too old, 1.5 is needed"
    with pytest.raises(UnsupportedError, match=r"(?s)ExecuTorch cannot be used here.*version 1\.2\.0 is too old"):
        of.executorch.lower(Calls(custom_gelu), (torch.ones(3),))
    with pytest.raises(UnsupportedError, match=r"version 1\.2\.0 is too old"):
        _adapter.adapter.__wrapped__()
    monkeypatch.undo()
    monkeypatch.setattr(_adapter, "_PROBE", "include/no_such_header.h")
    assert "comes without C++ headers" in engine.availability().reason


def test_a_machine_without_a_compiler_says_so(monkeypatch, tmp_path):
    def nothing():
        raise ToolchainError("no C++ compiler", got="tried g++, clang++", hint="install one")

    (engine,) = engines
    monkeypatch.setenv("OPFORGE_CACHE", str(tmp_path))
    monkeypatch.setattr("opforge.engines.executorch._engine.find_compiler", nothing)
    state = engine.availability()
    assert not state.ok and "there is no compiler: tried g++" in state.reason and state.hint == "install one"


def test_a_build_that_failed_is_kept_in_mind(monkeypatch, tmp_path):
    from dataclasses import replace

    monkeypatch.setenv("OPFORGE_CACHE", str(tmp_path))
    broken = replace(_adapter.recipe(), flags=("-include", "no_such_header.h"))
    for words in (
        r"no_such_header\.h",
        r"(?s)an earlier build of the adapter for executorch .* failed.*no_such_header",
    ):
        with pytest.raises(BuildError, match=words):
            broken.build()


def test_a_name_that_is_taken_is_refused(hand, hand_library):
    operators = load_library(hand_library).operators
    define = _adapter.adapter().define
    define(operators["test.hand::Gelu:1"].address, "test_hand::gelu.out")
    with pytest.raises(ArgumentError, match=r"(?s)the name is taken by another operator.*Gelu.*MulRows"):
        define(operators["test.hand::MulRows:1"].address, "test_hand::gelu.out")
    with pytest.raises(ArgumentError, match=r"aten::addmm.out: another library has registered a kernel of this name"):
        define(operators["test.hand::MulRows:1"].address, "aten::addmm.out")


def test_names_that_an_application_registers_are_those_of_lowered_files(hand, hand_library):
    """An application has no Python to ask: the adapter makes the names itself."""
    import ctypes

    from executorch.runtime import Runtime

    from opforge.build import library_for
    from opforge.engines.executorch._variants import entry_named
    from opforge.schema import registry, snake_case

    def register(library):
        before = Runtime.get().operator_registry.operator_names
        text = ctypes.create_string_buffer(1000)
        function = _adapter.adapter().library.opforge_executorch_register
        assert function(ctypes.c_void_p(library.table), text, 1000) == 0, text.value
        return Runtime.get().operator_registry.operator_names - before

    assert register(load_library(hand_library)) == set(), "all are there by the names that Python gave"
    names = ["PReLU", "Conv2DFast", "HTTPServer", "Gelu2", "ABC", "X2Y", "ReLU6Grad2x"]
    made = [of.formula(f"test.many.names::{name}", differentiable=False)(lambda x: x + 1) for name in names]
    found = register(library_for(made))
    assert found == {f"test_many_names::{snake_case(name)}.out" for name in names}
    assert all(entry_named(name.removesuffix(".out")) for name in found)
    for operator in made:
        registry.unregister(operator)


def test_eight_threads_on_one_session(lowered):
    import threading

    x = torch.randn(64, 64)
    session, wrong = lowered(custom_gelu, x), []
    (expected,) = session.execute([x])

    def work():
        for _ in range(50):
            if not torch.equal(session.execute([x])[0], expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
