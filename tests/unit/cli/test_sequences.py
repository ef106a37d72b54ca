"""Commands on a model with sequences and optionals."""

import numpy as np
import onnx
import onnx.parser

MODEL = """
<ir_version: 10, opset_import: ["": 21]>
g (seq(float[N,2]) s, float[N,2] x, optional(float[2]) o) => (seq(float[N,2]) t, optional(float[2]) p, float[M,2] y) {
  t = SequenceInsert(s, x)
  p = Identity(o)
  y = ConcatFromSequence <axis = 0> (t)
}
"""


def test_inspect_run_and_compare_a_model_with_sequences(opforge, folder):
    onnx.save(onnx.parser.parse_model(MODEL), "s.onnx")
    assert opforge("compile", "s.onnx", "-o", "s.bin").code == 0
    for name in ("s.onnx", "s.bin"):
        shown = opforge("inspect", name).out
        assert "input   s     sequence of f32  [N, 2]" in shown
        assert "output  p     optional of f32  [2]" in shown
        assert [v["kind"] for v in opforge("inspect", name, "--json").json["inputs"]] == [
            "sequence",
            "tensor",
            "optional",
        ]
    one, two = np.zeros((1, 2), np.float32), np.ones((2, 2), np.float32)
    np.savez("in.npz", **{"s[0]": one, "s[1]": two, "x": one})
    result = opforge("run", "s.bin", "--npz", "in.npz", "--output", "out.npz", "--json")
    assert result.json["empty"] == ["p"]
    assert {n: f["shape"] for n, f in result.json["outputs"].items()} == {
        "t[0]": [1, 2],
        "t[1]": [2, 2],
        "t[2]": [1, 2],
        "y": [4, 2],
    }
    with np.load("out.npz") as written:
        np.testing.assert_array_equal(written["y"], np.concatenate([one, two, one]))
    assert "p is an optional that is empty" in opforge("run", "s.bin", "--npz", "in.npz").out
    assert opforge("run", "s.bin", "--random").code == 0
    compared = opforge("compare", "s.onnx", "--engine", "opforge", "--engine", "reference", "--json")
    assert compared.code == 0
    assert [row["output"] for row in compared.json["rows"]] == ["t[0]", "t[1]", "t[2]", "p", "y"]


def test_what_is_missing_is_said_with_its_kind(opforge, folder):
    onnx.save(onnx.parser.parse_model(MODEL), "s.onnx")
    result = opforge("run", "s.onnx")
    assert result.code == 2
    assert "s: sequence of float32[N, 2], x: float32[N, 2], o: optional of float32[2]" in result.err


def test_nodes_of_subgraphs_are_listed_with_their_graph(opforge, folder):
    text = """
    <ir_version: 10, opset_import: ["": 21]>
    main (float[2] x, bool c) => (float[2] y) {
      y = If (c) <then_branch = yes () => (float[2] a) { a = Softmax(x) },
                  else_branch = no () => (float[2] b) { b = Exp(x) }>
    }
    """
    onnx.save(onnx.parser.parse_model(text), "if.onnx")
    assert opforge("compile", "if.onnx").code == 0
    nodes = opforge("inspect", "if.bin", "--nodes", "--json").json["nodes"]
    assert [(n["graph"], n["op"]) for n in nodes] == [("main", "If"), ("yes", "Softmax"), ("no", "Formula")]
    assert nodes[0]["attributes"] == {"then_branch": "graph yes", "else_branch": "graph no"}
    assert "graph  node" in opforge("inspect", "if.bin", "--nodes").out
