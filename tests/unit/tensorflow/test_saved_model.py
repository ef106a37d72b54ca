"""SavedModels in fresh processes: with the manifest, without it, with a library built ahead, damaged."""

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import opforge as of
from opforge.build import library_for
from opforge.build.plan import plan_library
from opforge.cuda import emulate_operators
from opforge.errors import ArgumentError, CandidateError, CorruptFileError
from opforge.ops import clip_sigmoid, custom_gelu, mod_sigmoid, swish
from opforge.schema import registry

tf = pytest.importorskip("tensorflow")

# One process for everything that wants a fresh one, since importing TensorFlow takes seconds. The order matters: first
# what needs that nothing is registered or declared yet.
FRESH = """
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np, tensorflow as tf
folder = sys.argv[1]
results = {}

def failing(name, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except Exception as error:
        results[name] = f"{type(error).__name__}: {error}"

def compare(name, **options):
    model = opforge.tensorflow.load(f"{folder}/{name}/saved", **options)
    x, y, g = (np.load(f"{folder}/{name}/{array}.npy") for array in "xyg")
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        total = tf.reduce_sum(model(x))
    dx, dlevel = tape.gradient(total, [x, model.level])
    np.testing.assert_array_equal(model(x), y)
    np.testing.assert_allclose(dx, g, rtol=1e-6)
    return dlevel is not None

failing("plain", tf.saved_model.load, f"{folder}/nowhere/saved")
import opforge.tensorflow
results["behind"] = compare("behind", libraries=[f"{folder}/cuda", f"{folder}/cpu"])
results["ahead"] = compare("ahead")
results["declarations"] = "opforge.ops" in sys.modules
failing("nowhere", opforge.tensorflow.load, f"{folder}/nowhere/saved", libraries=[f"{folder}/nowhere"])
import opforge.ops
results["declared"] = compare("declared")
os.environ["OPFORGE_JIT"] = "off"
operator = opforge.formula("test.tf::Changed")(lambda x: x + 2.0)
failing("changed, declared", opforge.tensorflow.load, f"{folder}/changed/saved")
operator(tf.ones(2))
failing("changed, called", opforge.tensorflow.load, f"{folder}/changed/saved")
print(json.dumps(results))
"""


class Gate(tf.Module):
    def __init__(self, first, second):
        self.level = tf.Variable(0.3)
        self.first, self.second = first, second

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])
    def __call__(self, x):
        return self.second(self.first(x), self.level)


def save_gate(path, first, second):
    path.mkdir()
    module = Gate(first, second)
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


def save_formula(path, operator):
    module = tf.Module()
    module.run = tf.function(lambda x: operator(x), input_signature=[tf.TensorSpec([None])])
    of.tensorflow.save(module, path / "saved")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folders: two modules, one whose operator is declared nowhere else, one whose operator will have changed."""
    path = tmp_path_factory.mktemp("saved_model")
    save_gate(path / "ahead", custom_gelu, mod_sigmoid)
    save_gate(path / "declared", clip_sigmoid, lambda x, level: x * level)
    save_formula(path / "nowhere", of.formula("test.tf::Nowhere")(lambda x: x * 2.0))
    save_gate(path / "behind", swish, lambda x, level: x * level)
    (path / "nowhere/notes.so").write_text("no library")
    before = of.formula("test.tf::Changed")(lambda x: x + 1.0)
    save_formula(path / "changed", before)
    registry.unregister(before)
    return path


@pytest.fixture
def folder(saved):
    return saved / "ahead"


@pytest.fixture(scope="module")
def fresh(saved):
    """What a process found that began with nothing but kernel libraries of two operators, built ahead."""
    libraries = saved / "libraries"
    libraries.mkdir()
    for operator in (custom_gelu, mod_sigmoid):
        shutil.copy(library_for([operator]).path, libraries)
    for name, library in (("cuda", emulate_operators(plan_library([swish]).operators)), ("cpu", library_for([swish]))):
        (saved / name).mkdir()
        shutil.copy(library.path, saved / name)
    done = subprocess.run(
        [sys.executable, "-c", FRESH, saved], capture_output=True, text=True, check=False,
        env={**os.environ, "OPFORGE_LIBRARY_PATH": str(libraries)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_manifest_names_what_the_graph_needs(folder):
    rows = json.loads((folder / "saved/assets.extra/opforge.json").read_text())["operators"]
    keys = {row["key"] for row in rows}
    assert {"com.example::CustomGELU:1", "com.example::ModSigmoid:1"} <= keys
    assert "ComExampleCustomGELUV1" in {row["operation"] for row in rows}
    assert not any("/" in str(value) for row in rows for value in row.values() if value != row["signature"])


def test_a_fresh_process_loads_what_it_declares(fresh):
    assert fresh["declared"] is True


def test_a_library_built_ahead_serves_without_any_declaration(fresh):
    assert fresh["ahead"] is True
    assert fresh["declarations"] is False


def test_a_library_for_another_device_that_comes_first_hides_none(fresh):
    assert fresh["behind"] is True


def test_what_is_nowhere_is_listed(fresh):
    assert "Op type not registered 'TestTfNowhereV1'" in fresh["plain"]
    assert fresh["nowhere"].startswith("CandidateError: test.tf::Nowhere:1: operators of the SavedModel are not here")
    assert "notes.so" in fresh["nowhere"]
    assert "none of the group opforge.operators declares it" in fresh["nowhere"]


@pytest.mark.parametrize(("state", "words"), [("declared", "is declared"), ("called", "is registered with")])
def test_a_changed_operator_is_an_error_that_names_both(saved, fresh, state, words):
    """The model was saved with `x + 1`; the fresh process declares `x + 2` under the same name, then also calls it."""
    (row,) = json.loads((saved / "changed/saved/assets.extra/opforge.json").read_text())["operators"]
    text = fresh[f"changed, {state}"]
    assert text.startswith("CandidateError: test.tf::Changed:1: operators of the SavedModel are not here")
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
