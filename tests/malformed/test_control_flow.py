"""Hostile programs with subgraphs, sequences and optionals: refused when the file is opened, with the node named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opforge.bin.format import read_table
from opforge.bin.program import Graph, GraphRef, Layout, Node
from opforge.bin.session import Session
from opforge.errors import CorruptFileError
from tests.fuzz.seeds import control, values
from tests.malformed.limited import attempt
from tests.malformed.test_bin_files import signed
from tests.unit.bin.programs import Builder

F32 = np.float32
CORRUPT = 5


def node_of(b: Builder, op: str) -> tuple[Node, Graph]:
    return next((n, g) for g in b.program.graphs for n in g.nodes if n.op == op)


def graph_of(b: Builder, op: str, name: str) -> Graph:
    reference = node_of(b, op)[0].attributes[name]
    assert isinstance(reference, GraphRef)
    return b.program.graphs[reference.index]


def no_branch(b: Builder) -> None:
    attributes = node_of(b, "If")[0].attributes
    attributes["other"] = attributes.pop("else_branch")


def branch_with_inputs(b: Builder) -> None:
    graph_of(b, "If", "then_branch").inputs.append(b.value("extra", F32, [1]))


def branch_of_fewer_outputs(b: Builder) -> None:
    graph_of(b, "If", "then_branch").outputs.pop()


def branch_of_another_dtype(b: Builder) -> None:
    b.program.values[graph_of(b, "If", "then_branch").outputs[0]].dtype = 7


def branch_of_another_layout(b: Builder) -> None:
    value = b.program.values[node_of(b, "If")[0].outputs[0]]
    value.shape, value.layout = [1, 1, 1, 1], Layout("c16")


def condition_of_numbers(b: Builder) -> None:
    b.program.values[node_of(b, "If")[0].inputs[0]].dtype = 7


def condition_is_absent(b: Builder) -> None:
    node_of(b, "If")[0].inputs[0] = -1


def body_of_more_inputs(b: Builder) -> None:
    graph_of(b, "Loop", "body").inputs.append(b.value("extra", F32, [5]))


def body_of_more_outputs(b: Builder) -> None:
    body = graph_of(b, "Loop", "body")
    body.outputs.append(body.outputs[0])


def body_with_a_float_counter(b: Builder) -> None:
    b.program.values[graph_of(b, "Loop", "body").inputs[0]].dtype = 1


def carried_of_another_dtype(b: Builder) -> None:
    b.program.values[graph_of(b, "Loop", "body").inputs[2]].dtype = 10


def loop_without_inputs(b: Builder) -> None:
    node_of(b, "Loop")[0].inputs = []


def carried_is_absent(b: Builder) -> None:
    node_of(b, "Loop")[0].inputs[2] = -1


def scan_output_of_sequences(b: Builder) -> None:
    b.program.values[node_of(b, "Loop")[0].outputs[-1]].kind = "sequence"


def sequence_into_a_kernel(b: Builder) -> None:
    b.node("Concat", [b.input("z", F32, [5])], F32, [5], axis=0)
    b.program.values[b.graph.inputs[-1]].kind = "sequence"
    b.graph.nodes.insert(0, b.graph.nodes.pop())


CONTROL = [
    (no_branch, "a branch is missing, or its inputs and outputs are not those of the node"),
    (branch_with_inputs, "a branch is missing, or its inputs and outputs are not those of the node"),
    (branch_of_fewer_outputs, "a branch is missing, or its inputs and outputs are not those of the node"),
    (branch_of_another_dtype, "a branch gives another type than the node says"),
    (branch_of_another_layout, "the body takes or gives another type than the node says"),
    (condition_of_numbers, "its inputs or outputs are not those of the operator"),
    (condition_is_absent, "its inputs or outputs are not those of the operator"),
    (body_of_more_inputs, "the body is missing, or its inputs and outputs are not those of the node"),
    (body_of_more_outputs, "the body is missing, or its inputs and outputs are not those of the node"),
    (body_with_a_float_counter, "the body's counter or condition has a wrong type"),
    (carried_of_another_dtype, "the body takes or gives another type than the node says"),
    (loop_without_inputs, "the body is missing, or its inputs and outputs are not those of the node"),
    (carried_is_absent, "the body takes or gives another type than the node says"),
    (scan_output_of_sequences, "the body takes or gives another type than the node says"),
    (sequence_into_a_kernel, "a kernel is given a sequence or an optional"),
]


def kinds(op: str, which: str, k: int, **changes: Any) -> Callable[[Builder], None]:
    def change(b: Builder) -> None:
        value = b.program.values[getattr(node_of(b, op)[0], which)[k]]
        for name, new in changes.items():
            setattr(value, name, new)

    return change


def inputs(op: str, *given: int) -> Callable[[Builder], None]:
    def change(b: Builder) -> None:
        node_of(b, op)[0].inputs[:] = given

    return change


WRONG = "its inputs or outputs are not those of the operator"
VALUES = [
    (kinds("SequenceInsert", "inputs", 0, kind="tensor"), WRONG),
    (kinds("SequenceInsert", "inputs", 1, dtype=11), WRONG),
    (kinds("SequenceAt", "outputs", 0, dtype=7), WRONG),
    (kinds("SequenceLength", "outputs", 0, dtype=6), WRONG),
    (kinds("ConcatFromSequence", "outputs", 0, kind="sequence"), WRONG),
    (kinds("SplitToSequence", "outputs", 0, kind="optional"), WRONG),
    (kinds("OptionalHasElement", "outputs", 0, dtype=1), WRONG),
    (kinds("OptionalGetElement", "outputs", 0, kind="sequence"), WRONG),
    (inputs("SequenceAt"), WRONG),
    (inputs("SequenceInsert", -1, -1), WRONG),
    (inputs("SequenceErase", -1), WRONG),
    (inputs("ConcatFromSequence", -1), WRONG),
    (kinds("SequenceInsert", "inputs", 0, layout=Layout("c16"), shape=[1, 1, 1, 1]), "a record is not valid"),
]


@pytest.mark.parametrize(("seed", "change", "words"), [(control, *c) for c in CONTROL] + [(values, *v) for v in VALUES])
def test_refused_when_opened(
    seed: Callable[[], Builder], change: Callable[[Builder], None], words: str, tmp_path: Path
) -> None:
    b = seed()
    change(b)
    with pytest.raises(CorruptFileError) as caught:
        Session(b.save(tmp_path / "hostile.bin"))
    assert words in str(caught.value)
    assert "section '" in str(caught.value)


def nested(depth: int) -> Builder:
    """Branches within branches; every level captures the condition and x."""
    main = Builder()
    c, x = main.input("c", np.bool_, []), main.input("x", F32, [2])
    level, holders = main, []
    for k in range(depth):
        inner, other = Builder(main.program, f"then{k}"), Builder(main.program, f"else{k}")
        inner.graph.captures, other.graph.captures = [c, x], [x]
        other.output(other.node("Identity", [x], F32, [2]))
        branches = {"then_branch": GraphRef(inner.index), "else_branch": GraphRef(other.index)}
        level.output(level.node("If", [c], F32, [2], **branches))
        holders.append(level)
        level = inner
    level.output(level.node("Concat", [x], F32, [2], axis=0))
    return main


def test_nesting_has_a_limit(tmp_path: Path) -> None:
    x = np.ones(2, F32)
    got = nested(64).session(tmp_path).run({"c": np.array(True), "x": x})
    np.testing.assert_array_equal(next(iter(got.values())), x)
    for depth in (65, 1000):
        with pytest.raises(CorruptFileError, match="subgraphs are nested too deep") as caught:
            nested(depth).session(tmp_path)
        assert "expected: at most 64 levels" in str(caught.value)


@pytest.mark.parametrize("seed", [control, values])
def test_every_byte_behind_good_checksums(seed: Callable[[], Builder], tmp_path: Path) -> None:
    """A program that passes the verifier cannot read or write out of bounds, whatever its bytes say."""
    path = seed().save(tmp_path / "model.bin")
    data = path.read_bytes()
    given = {
        "x": np.arange(5, dtype=F32),
        "c": np.array(False),
        "s": [np.zeros(2, F32)] * 3,
        "k": np.array(1),
        "o": None,
    }
    feeds = [given[i.name] for i in Session(path).inputs]
    assert attempt(data, feeds) == 0
    ended: set[int] = set()
    for section in read_table(path).sections:
        if section.name not in ("values", "program", "dimensions", "signature"):
            continue
        for position in range(section.offset, section.offset + section.size):
            for mask in (0x01, 0x02, 0x40):
                broken = bytearray(data)
                broken[position] ^= mask
                ended.add(attempt(signed(bytes(broken)), feeds))
    assert {0, CORRUPT} <= ended
