"""Models from files and from memory: external data, large models, and what is wrong with them."""

from __future__ import annotations

import mmap
import resource
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import opforge as of
from opforge.bin import compiler
from opforge.bin import format as bin_format
from opforge.bin.lowering import emit, load
from opforge.bin.packing import ELEMENTS, PACKERS, Late
from opforge.errors import ArgumentError
from tests.soak import FACTOR
from tests.unit.compiler.graphs import model, node

RNG = np.random.default_rng(4)
SHAPES = {
    "matmul16": (5, 20), "conv16": (20, 17, 3, 3), "depthwise16": (20, 1, 3, 3), "first16": (24, 3, 3, 3),
    "winograd16": (20, 18, 3, 3), "deconv16": (6, 20, 2, 2),
}  # fmt: skip


def linear(folder: Path, rows=24, columns=40, **external) -> tuple[Path, np.ndarray]:
    """A product with weights in external data."""
    weights = RNG.standard_normal((rows, columns)).astype(np.float32)
    proto = model([node("MatMul", "x w", "y")], {"x": ["n", rows]}, {"w": weights})
    path = folder / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="model.data", size_threshold=0, **external)
    return path, weights


def test_external_data_is_found_beside_the_model(tmp_path: Path) -> None:
    path, weights = linear(tmp_path)
    of.compile(path, tmp_path / "model.bin")
    x = RNG.standard_normal((3, 24)).astype(np.float32)
    got = of.Session(tmp_path / "model.bin").run({"x": x})["y"]
    np.testing.assert_allclose(got, x @ weights, rtol=1e-5, atol=1e-5)


def test_external_data_is_mapped_once_for_many_tensors(tmp_path: Path) -> None:
    weights = {f"w{k}": np.full(4, k, np.float32) for k in range(40)}
    names = [f"s{k}" for k in range(39)]
    chain = [node("Add", f"{a} w{k}", b) for k, (a, b) in enumerate(zip(["x", *names], [*names, "y"], strict=True))]
    onnx.save(model(chain, {"x": [4]}, weights), tmp_path / "m.onnx", save_as_external_data=True,
              location="m.data", size_threshold=0)  # fmt: skip
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    loaded, _ = load.load(tmp_path / "m.onnx")
    assert len(list(Path("/proc/self/fd").iterdir())) <= open_before + 1
    bases = set()
    for value in loaded.graph.initializers.values():
        assert value.const_value is not None
        data = value.const_value.numpy()
        while isinstance(data, np.ndarray) and data.base is not None:
            data = data.base
        bases.add(id(data.obj if isinstance(data, memoryview) else data))
    assert len(bases) == 1


def test_large_weights_stay_views_until_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit, "LATE", 1)
    path, weights = linear(tmp_path)
    program, _ = compiler.compile_program(path)
    (data,) = (v.data for v in program.values if v.data is not None)
    assert isinstance(data, Late)
    held = data._weights
    while isinstance(held, np.ndarray) and held.base is not None:
        held = held.base
    assert isinstance(held.obj if isinstance(held, memoryview) else held, mmap.mmap)
    np.testing.assert_array_equal(np.asarray(data), PACKERS["matmul16"](weights))


@pytest.mark.parametrize("packing", ELEMENTS)
def test_late_packing_knows_its_size(packing: str) -> None:
    weights = RNG.standard_normal(SHAPES[packing]).astype(np.float32)
    late = Late(weights, packing)
    assert late.nbytes == PACKERS[packing](weights).nbytes == np.asarray(late).nbytes


def test_late_packing_is_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = linear(tmp_path)
    of.compile(path, tmp_path / "early.bin")
    monkeypatch.setattr(emit, "LATE", 1)
    of.compile(path, tmp_path / "late.bin")
    assert (tmp_path / "early.bin").read_bytes() == (tmp_path / "late.bin").read_bytes()


@pytest.mark.parametrize("width", [512, 4096, 8192])
def test_a_draft_plans_as_the_file_does(tmp_path: Path, width: int) -> None:
    # The small bias is in the draft, the large weights are zeros, within a block of checksums and over several.
    bias = RNG.standard_normal(width).astype(np.float32)
    weights = RNG.standard_normal((64, width)).astype(np.float32)
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "y")]
    program, _ = compiler.compile_program(model(nodes, {"x": [2, 64]}, {"w": weights, "b": bias}))
    whole = bin_format.write(program, tmp_path / "whole.bin")
    assert bin_format.write(program, tmp_path / "draft.bin", weights=False) == whole
    plans = []
    for name in ("whole", "draft"):
        session = of.Session(tmp_path / f"{name}.bin", verify="full")
        session.prepare({"x": [2, 64]})
        plans.append(session.plan)
    assert plans[0] == plans[1]
    assert (tmp_path / "draft.bin").stat().st_blocks < (tmp_path / "whole.bin").stat().st_blocks


def test_nothing_large_is_serialized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "PIECEWISE", 1000)
    weights = RNG.standard_normal((24, 40)).astype(np.float32)
    proto = model([node("MatMul", "x w", "y")], {"x": ["n", 24]}, {"w": weights})
    whole = proto.ByteSize()

    def refuse(self: onnx.ModelProto, **_: object) -> bytes:
        raise AssertionError(f"a model of {whole} bytes was serialized")

    monkeypatch.setattr(onnx.ModelProto, "SerializeToString", refuse)
    monkeypatch.setattr(onnx.GraphProto, "SerializeToString", refuse)
    program, _ = compiler.compile_program(proto)
    first = program.metadata["source_sha256"]
    assert compiler.compile_program(proto)[0].metadata["source_sha256"] == first
    proto.graph.initializer[0].raw_data = (weights + 1).tobytes()
    assert compiler.compile_program(proto)[0].metadata["source_sha256"] != first


def test_a_file_too_large_for_protobuf(tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    with path.open("wb") as stream:
        stream.truncate(2**31)
    with pytest.raises(ArgumentError, match=r"2 GiB or more(.|\n)*external data(.|\n)*save_as_external_data=True"):
        of.compile(path, tmp_path / "out.bin")


def test_external_data_that_is_missing(tmp_path: Path) -> None:
    path, _ = linear(tmp_path)
    (tmp_path / "model.data").unlink()
    with pytest.raises(ArgumentError, match=r"initializer 'w': external data does not exist(.|\n)*model\.data"):
        of.compile(path, tmp_path / "out.bin")


def test_external_data_that_is_too_short(tmp_path: Path) -> None:
    path, weights = linear(tmp_path)
    with (tmp_path / "model.data").open("r+b") as stream:
        stream.truncate(weights.nbytes - 1)
    with pytest.raises(ArgumentError, match=rf"too short(.|\n)*{weights.nbytes} bytes at 0(.|\n)*a file of 3839 bytes"):
        of.compile(path, tmp_path / "out.bin")


def _redirect(path: Path, location: str) -> None:
    proto = onnx.load(path, load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    path.write_bytes(proto.SerializeToString())


@pytest.mark.parametrize("kind", ["parent", "absolute", "link"])
def test_external_data_outside_the_folder(tmp_path: Path, kind: str) -> None:
    (tmp_path / "inner").mkdir()
    path, _ = linear(tmp_path / "inner")
    outside = tmp_path / "secret.data"
    (tmp_path / "inner/model.data").rename(outside)
    location = {"parent": "../secret.data", "absolute": str(outside), "link": "link.data"}[kind]
    (tmp_path / "inner/link.data").symlink_to(outside)
    _redirect(path, location)
    with pytest.raises(ArgumentError, match=r"outside the model's folder"):
        of.compile(path, tmp_path / "out.bin")


def test_a_folder_of_links_into_a_store(tmp_path: Path) -> None:
    # As model hubs keep files: names are links to blobs that lie together.
    for name in ("blobs", "snapshot"):
        (tmp_path / name).mkdir()
    linear(tmp_path / "blobs")
    for name in ("model.onnx", "model.data"):
        (tmp_path / "blobs" / name).rename(tmp_path / "blobs" / f"hash-{name}")
        (tmp_path / "snapshot" / name).symlink_to(tmp_path / "blobs" / f"hash-{name}")
    of.compile(tmp_path / "snapshot/model.onnx", tmp_path / "out.bin")
    assert of.Session(tmp_path / "out.bin").run({"x": np.ones((1, 24), np.float32)})["y"].shape == (1, 40)


def test_weights_above_two_gigabytes_in_little_memory(tmp_path: Path) -> None:
    """A sparse file of weights: a table that is gathered from, and a product behind it (2.2 GB in `make soak`)."""
    rows, width = 8_800_000 if FACTOR > 1 else 500_000, 64
    product = RNG.standard_normal((width, 8)).astype(np.float32)
    table = rows * width * 4
    data = tmp_path / "large.data"
    marked = np.arange(width, dtype=np.float32)
    with data.open("wb") as stream:
        stream.truncate(table)
        stream.seek(table - 4 * width)
        stream.write(marked.tobytes() + product.tobytes())
    assert data.stat().st_size > (2**31 if FACTOR > 1 else 2**26)

    def external(name: str, dims: list[int], offset: int, length: int) -> TensorProto:
        tensor = TensorProto(name=name, dims=dims, data_type=1, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "large.data"), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        return tensor

    proto = model([node("Gather", "t i", "g"), node("MatMul", "g w", "y")], {"i": (TensorProto.INT64, ["n"])})
    proto.graph.initializer.append(external("t", [rows, width], 0, table))
    proto.graph.initializer.append(external("w", [width, 8], table, product.nbytes))
    (tmp_path / "large.onnx").write_bytes(proto.SerializeToString())
    status = Path("/proc/self/status").read_text().splitlines()
    used = 1024 * int(next(row for row in status if row.startswith("VmData")).split()[1])
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (used + (1 << 26 if FACTOR == 1 else 1 << 29), limits[1]))
    try:  # all that is allocated counts, mapped files do not
        report = of.compile(tmp_path / "large.onnx", tmp_path / "large.bin")
        session = of.Session(tmp_path / "large.bin", threads=1)
        got = session.run({"i": np.array([0, rows - 1])})["y"]
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)
    assert report.bytes > data.stat().st_size
    np.testing.assert_allclose(got, np.stack([np.zeros(width, np.float32), marked]) @ product, rtol=1e-5)
