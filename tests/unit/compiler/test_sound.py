"""A program that reads what is not computed is never emitted."""

import pytest

from opforge.bin.lowering import sound
from opforge.bin.program import Graph, Node, Program, Value
from opforge.errors import InternalError


def program(nodes: list[Node], outputs: list[int]) -> Program:
    values = [Value(name, 1, [2]) for name in ("x", "a", "b")]
    return Program(values, [Graph("main", inputs=[0], outputs=outputs, nodes=nodes)])


def relu(source: int, target: int) -> Node:
    return Node("", "Relu", 14, [source], [target], origin=[f"relu{target}"])


def test_sound_programs_pass():
    sound.require_order(program([relu(0, 1), relu(1, 2)], [2]))


def test_a_node_that_reads_too_early():
    with pytest.raises(InternalError, match=r"relu1 \(Relu\), input 0: (.|\n)*not computed(.|\n)*got: 'b'"):
        sound.require_order(program([relu(2, 1), relu(0, 2)], [1]))


def test_an_output_that_nobody_computes():
    with pytest.raises(InternalError, match=r"graph 'main', output(.|\n)*got: 'b'"):
        sound.require_order(program([relu(0, 1)], [2]))
