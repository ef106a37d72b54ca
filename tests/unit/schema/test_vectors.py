"""Every golden vector gives what is written there, in Python."""

import pytest

from opforge.errors import ArgumentError, DtypeError, OpforgeError, SchemaError
from opforge.schema import ABSENT, DType, GradientProgram, Signature, format_types, parse_types
from opforge.schema.lexer import format_literal
from tests.unit.schema.vectors import VECTORS, name_of, of_kind

KINDS = {"argument": ArgumentError, "dtype": DtypeError, "schema": SchemaError}
WHERE = "test::Op"


def check_error(vector, act):
    with pytest.raises(OpforgeError) as caught:
        act()
    assert str(caught.value) == vector["error"]["message"]
    assert type(caught.value) is KINDS[vector["error"]["kind"]]


def test_there_are_many_vectors():
    assert len(VECTORS) >= 80
    assert sum("error" in vector for vector in VECTORS) >= 60


@pytest.mark.parametrize("vector", of_kind("parse"), ids=name_of)
def test_parse(vector):
    def act():
        signature = Signature.parse(vector["signature"], where=WHERE)
        if "types" in vector:
            types = parse_types(vector["types"], signature, where=WHERE)
            assert parse_types(format_types(types), signature) == types
        return signature

    if "error" in vector:
        check_error(vector, act)
        return
    signature = act()
    assert str(signature) == vector["canonical"]
    assert str(Signature.parse(str(signature))) == str(signature)


@pytest.mark.parametrize("vector", of_kind("bind"), ids=name_of)
def test_bind(vector):
    signature = Signature.parse(vector["signature"])
    types = parse_types(vector["types"], signature) if "types" in vector else None
    shapes = [ABSENT if shape == "absent" else shape for shape in vector["shapes"]]
    dtypes = [None if name is None else DType.parse(name) for name in vector["dtypes"]]

    def act():
        return signature.bind(shapes, dtypes, vector.get("attributes", {}), where=WHERE, types=types)

    if "error" in vector:
        check_error(vector, act)
        return
    binding = act()
    assert binding.output_shapes == vector["output_shapes"]
    assert [None if d is None else d.name for d in binding.output_dtypes] == vector["output_dtypes"]
    assert binding.output_counts == vector["output_counts"]
    for name, text in vector.get("values", {}).items():
        assert format_literal(binding.attributes[name]) == text
    assert list(binding.attributes) == [a.name for a in signature.attributes]


@pytest.mark.parametrize("vector", of_kind("gradient"), ids=name_of)
def test_gradient(vector):
    def act():
        program = GradientProgram.parse(vector["text"], where=WHERE)
        if "signature" in vector:
            program.check(Signature.parse(vector["signature"]), where=WHERE)
        return program

    if "error" in vector:
        check_error(vector, act)
        return
    program = act()
    assert str(program) == vector["canonical"]
    assert GradientProgram.parse(str(program)) == program
    for case in vector.get("prune", []):
        pruned = program.prune(case["wanted"])
        assert str(pruned) == case["program"]
        for kind in "iog":
            assert list(pruned.reads(kind)) == case[kind]
        assert sorted(pruned.used_results()) == case["v"]
