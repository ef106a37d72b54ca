"""Python and C++ agree on thousands of made-up texts and calls, mistakes included, word for word."""

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from opforge.errors import ArgumentError, DtypeError, OpforgeError, SchemaError
from opforge.schema import ABSENT, DECLARABLE, DType, GradientProgram, Signature, parse_types
from tests.unit.schema.vectors import PATH, of_kind

ROOT = Path(__file__).parents[3]
WHERE = "test::Op"
NAMES = {ArgumentError: "argument", DtypeError: "dtype", SchemaError: "schema"}
# Pieces that mutations put in: every mark of the language, words with a meaning, and characters with none.
PIECES = [
    *'()[],;:?*+-=@._#%\t\x01é"\\0',
    "->",
    "//",
    "::",
    "bcast",
    "bcast(",
    "_",
    "inf",
    "true",
    "1.5e3",
    "99",
    "0",
    "i0",
    "v0",
    "return",
    "float",
    "ints",
    "T",
    "f32",
    "u16",
    "*S",
    "n",
    "99999999999999999999",
    '"\\u00e9"',
    "1e999",
]


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    sources = [ROOT / "tests/cpp/signature_vectors_test.cpp", ROOT / "tests/cpp/json.h"]
    newest = max(p.stat().st_mtime for p in [*sources, *(ROOT / "include/opforge/detail").glob("*.h")])
    built = ROOT / "build/dev/tests/cpp/signature_vectors_test"
    if built.exists() and built.stat().st_mtime > newest:
        return built
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    made = tmp_path_factory.mktemp("cpp") / "signature_vectors_test"
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}"]
    subprocess.run([compiler, *flags, str(sources[0]), "-o", str(made)], check=True)
    return made


def run(program, file):
    result = subprocess.run([program, file], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-2000:]
    return result.stdout


def expect(vector, act):
    """Write what Python gives into the vector."""
    try:
        vector.update(act())
    except OpforgeError as error:
        vector["error"] = {"kind": NAMES[type(error)], "message": str(error)}
    return vector


def mutated(text, random_):
    for _ in range(random_.choice((0, 1, 1, 1, 2, 3))):
        at = random_.randrange(len(text) + 1)
        end = min(len(text), at + random_.choice((0, 0, 1, 1, 2, 5)))
        text = text[:at] + random_.choice(["", *PIECES]) + text[end:]
    return text


def made_signature(random_):
    vector = {
        "name": "made",
        "kind": "parse",
        "signature": mutated(random_.choice(of_kind("parse"))["signature"], random_),
    }
    if random_.random() < 0.3:
        vector["types"] = mutated("T: f16 bf16 f32 f64; I: i32 i64", random_)

    def act():
        signature = Signature.parse(vector["signature"], where=WHERE)
        if "types" in vector:
            parse_types(vector["types"], signature, where=WHERE)
        return {"canonical": str(signature)}

    return expect(vector, act)


def made_gradient(random_):
    vector = {"name": "made", "kind": "gradient", "text": mutated(random_.choice(of_kind("gradient"))["text"], random_)}

    def act():
        program = GradientProgram.parse(vector["text"], where=WHERE)
        cases = []
        for _ in range(3):
            wanted = [random_.random() < 0.5 for _ in program.results]
            pruned = program.prune(wanted)
            reads = {kind: list(pruned.reads(kind)) for kind in "iog"} | {"v": sorted(pruned.used_results())}
            cases.append({"wanted": wanted, "program": str(pruned), **reads})
        return {"canonical": str(program), "prune": cases}

    return expect(vector, act)


def made_dim(random_):
    return random_.choice((0, 1, 1, 2, 2, 3, 3, 4, 5, 7, None, 2**62))


def made_call(random_):
    given = random_.choice([v for v in of_kind("bind") if not any("N" in str(s) for s in v["shapes"])])
    signature = Signature.parse(given["signature"])
    shapes = [s if isinstance(s, str) or s is None else list(s) for s in given["shapes"]]
    dtypes = list(given["dtypes"])
    for _ in range(random_.choice((1, 1, 2, 3))):
        k = random_.randrange(len(shapes) + 1)
        action = random_.randrange(7)
        if action == 0 or k == len(shapes):
            shapes.append([made_dim(random_) for _ in range(random_.randrange(4))])
            dtypes.append("f32")
        elif action == 1:
            del shapes[k], dtypes[k]
        elif action == 2:
            shapes[k], dtypes[k] = ("absent", None) if random_.random() < 0.5 else (None, dtypes[k])
        elif action == 3:
            dtypes[k] = random_.choice([None, "f32", *(d.name for d in DECLARABLE)])
        elif isinstance(shapes[k], list) and shapes[k]:
            shapes[k][random_.randrange(len(shapes[k]))] = made_dim(random_)
        elif isinstance(shapes[k], list):
            shapes[k].append(made_dim(random_))
    if any(isinstance(d, str) for s in shapes if isinstance(s, list) for d in s):
        shapes = [[None if isinstance(d, str) else d for d in s] if isinstance(s, list) else s for s in shapes]
    attributes = dict(given.get("attributes", {}))
    for name in attributes:
        if isinstance(attributes[name], int) and random_.random() < 0.5:
            attributes[name] = random_.choice((-5, -1, 0, 1, 2, 2**62, 2**63 - 1))
    vector = {"name": f"made from {given['name']}", "kind": "bind", "signature": given["signature"], "shapes": shapes}
    vector |= {"dtypes": dtypes, "attributes": attributes}
    types = None
    if "types" in given:
        vector["types"] = given["types"]
        types = parse_types(given["types"], signature)

    def act():
        binding = signature.bind(
            [ABSENT if s == "absent" else s for s in shapes],
            [None if d is None else DType.parse(d) for d in dtypes],
            attributes,
            where=WHERE,
            types=types,
        )
        return {
            "output_shapes": binding.output_shapes,
            "output_dtypes": [None if d is None else d.name for d in binding.output_dtypes],
            "output_counts": binding.output_counts,
        }

    return expect(vector, act)


@pytest.mark.compiler
def test_the_golden_vectors_hold_in_cpp(program):
    assert " 0 failures" in run(program, PATH)


@pytest.mark.compiler
@pytest.mark.parametrize(("make", "count"), [(made_signature, 4000), (made_gradient, 2000), (made_call, 4000)])
def test_made_vectors_agree(program, tmp_path, make, count):
    random_ = random.Random(20240601)
    vectors = [make(random_) for _ in range(count)]
    bad = sum("error" in vector for vector in vectors)
    assert count * 0.1 < bad < count * 0.95, "the mixture of good and bad texts is lopsided"
    file = tmp_path / "made.json"
    file.write_text(json.dumps(vectors, ensure_ascii=False), encoding="utf-8")
    assert f"{count} vectors" in run(program, file)
