"""SavedModels in fresh processes: with the manifest, without it, with a library built ahead, damaged."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import opforge as of
from opforge.errors import ArgumentError, CandidateError, CorruptFileError
from opforge.ops import custom_gelu, mod_sigmoid
from opforge.schema import registry

tf = pytest.importorskip("tensorflow")

LOAD = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np, tensorflow as tf
import opforge.tensorflow
folder = sys.argv[1]
model = opforge.tensorflow.load(folder + "/saved")
x = tf.constant(np.load(folder + "/x.npy"))
np.testing.assert_array_equal(model(x), np.load(folder + "/y.npy"))
with tf.GradientTape(persistent=True) as tape:
    tape.watch(x)
    y = tf.reduce_sum(model(x))
np.testing.assert_allclose(tape.gradient(y, x), np.load(folder + "/g.npy"), rtol=1e-6)
print("loaded", float(tape.gradient(y, model.level) is not None) if hasattr(model, "level") else "")
"""

NOWHERE = """
import sys
import tensorflow as tf
try:
    tf.saved_model.load(sys.argv[1])
except Exception as plain:
    print(plain)
import opforge.tensorflow
opforge.tensorflow.load(sys.argv[1], libraries=[sys.argv[2]])
"""


class Gate(tf.Module):
    def __init__(self):
        self.level = tf.Variable(0.3)

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])
    def __call__(self, x):
        return mod_sigmoid(custom_gelu(x), self.level)


def child(code, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved_model")
    module = Gate()
    x = tf.constant(np.random.default_rng(0).standard_normal((3, 4)), tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = module(x)
        total = tf.reduce_sum(y)
    np.save(path / "x.npy", x)
    np.save(path / "y.npy", y)
    np.save(path / "g.npy", tape.gradient(total, x))
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    of.tensorflow.save(module, path / "saved", options=options)
    return path


def test_the_manifest_names_what_the_graph_needs(folder):
    rows = json.loads((folder / "saved/assets.extra/opforge.json").read_text())["operators"]
    keys = {row["key"] for row in rows}
    assert {"com.example::CustomGELU:1", "com.example::ModSigmoid:1"} <= keys
    assert "ComExampleCustomGELUV1" in {row["operation"] for row in rows}
    assert not any("/" in str(value) for row in rows for value in row.values() if value != row["signature"])


def test_a_fresh_process_loads_by_the_manifest(folder):
    done = child(LOAD.replace("import opforge.tensorflow\n", "import opforge.tensorflow, opforge.ops\n"), folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["loaded", "1.0"]


def test_a_library_built_ahead_serves_without_any_declaration(folder, tmp_path):
    for name in ("custom_gelu", "mod_sigmoid"):
        command = [sys.executable, "-m", "opforge", "build", f"opforge.ops.{name}", "--out", tmp_path]
        subprocess.run(command, check=True, capture_output=True)
    code = LOAD + "assert 'opforge.ops' not in sys.modules\n"
    done = child(code, folder, OPFORGE_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr


def test_what_is_nowhere_is_listed(tmp_path):
    nowhere = of.formula("test.tf::Nowhere")(lambda x: x * 2.0)
    module = tf.Module()
    module.run = tf.function(lambda x: nowhere(x), input_signature=[tf.TensorSpec([None])])
    of.tensorflow.save(module, tmp_path / "saved")
    (tmp_path / "notes.so").write_text("no library")
    done = child(NOWHERE, tmp_path / "saved", tmp_path)
    assert "Op type not registered 'TestTfNowhereV1'" in done.stdout
    assert "test.tf::Nowhere:1: operators of the SavedModel are not here" in done.stderr
    assert "notes.so" in done.stderr
    assert "none of the group opforge.operators declares it" in done.stderr


CHANGED = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
import opforge as of
operator = of.formula("test.tf::Changed")(lambda x: x + 2.0)
for called in (False, True):
    if called:
        operator(tf.ones(2))
    try:
        of.tensorflow.load(sys.argv[1])
    except of.errors.CandidateError as error:
        print(error, "----", sep="\\n")
"""


def test_a_changed_operator_is_an_error_that_names_both(tmp_path):
    """The model was saved with `x + 1`; a fresh process declares `x + 2` under the same name, then also calls it."""
    before = of.formula("test.tf::Changed")(lambda x: x + 1.0)
    module = tf.Module()
    module.run = tf.function(lambda x: before(x), input_signature=[tf.TensorSpec([None])])
    of.tensorflow.save(module, tmp_path / "saved")
    registry.unregister(before)
    (row,) = json.loads((tmp_path / "saved/assets.extra/opforge.json").read_text())["operators"]
    done = child(CHANGED, tmp_path / "saved", OPFORGE_JIT="off")
    assert done.returncode == 0, done.stderr
    messages = done.stdout.split("----\n")[:-1]
    for text, words in zip(messages, ("is declared", "is registered with"), strict=True):
        assert "test.tf::Changed:1: operators of the SavedModel are not here" in text
        assert f"test.tf::Changed:1 {row['signature']} ({row['schema_hash'][:12]})" in text
        assert re.search(rf"this process: test.tf::Changed:1 .*\(\w{{12}}\) {words}", text), text
        assert text.count(row["schema_hash"][:12]) == 1, "what is here has another hash"


def test_bad_folders_and_manifests(folder, tmp_path):
    with pytest.raises(ArgumentError, match="there is no SavedModel"):
        of.tensorflow.load(tmp_path)
    with pytest.raises(ArgumentError, match="there is no SavedModel"):
        of.tensorflow.write_manifest(tmp_path)
    manifest = folder / "saved/assets.extra/opforge.json"
    whole = manifest.read_text()
    try:
        for text in ("", "[]", '{"format": 9, "operators": []}', whole[: len(whole) // 2]):
            manifest.write_text(text)
            with pytest.raises(CorruptFileError, match="the manifest cannot be read"):
                of.tensorflow.load(folder / "saved")
        changed = json.loads(whole)
        changed["operators"][0]["schema_hash"] = "0" * 64
        manifest.write_text(json.dumps(changed))
        with pytest.raises(CandidateError, match=r"(?s)are not here.*registered with another declaration"):
            of.tensorflow.load(folder / "saved")
    finally:
        manifest.write_text(whole)
    np.testing.assert_array_equal(
        of.tensorflow.load(folder / "saved")(np.load(folder / "x.npy")), np.load(folder / "y.npy")
    )
