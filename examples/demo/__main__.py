"""Train, export, simplify, compile and run MiniLM with CustomGELU; read a line of text; print one table."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import opforge as of
from examples.demo import minilm, ocr, sentences
from opforge._paths import library_dir
from opforge.cli._output import table

OUT = Path(__file__).resolve().parents[2] / "build" / "demo"


class Stages:
    """Rows of the table: stage, verdict, figures."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, str]] = []

    def add(self, name: str, passed: bool, figures: str, started: float) -> None:
        """Print a stage as it ends and keep it for the table."""
        seconds = f"{time.perf_counter() - started:.2f} s"
        self.rows.append((name, "✓" if passed else "FAILED", figures, seconds))
        print(f"{'✓' if passed else '✗'} {name}: {figures} ({seconds})", flush=True)

    @property
    def passed(self) -> bool:
        """Whether every stage passed."""
        return all(row[1] == "✓" for row in self.rows)


def median_ms(run: Callable[[], Any], rounds: int = 15) -> float:
    """Time one call; the median of several after a warm-up."""
    run()
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        run()
        times.append((time.perf_counter() - started) * 1e3)
    return statistics.median(times)


def megabytes(path: Path) -> str:
    """Return a file's size for people."""
    return f"{path.stat().st_size / 1e6:.1f} MB"


def main() -> int:
    """Run all stages; 0 when every one passed."""
    import torch

    OUT.mkdir(parents=True, exist_ok=True)
    stages = Stages()
    encoder = sentence_model(stages)
    onnx_path, bin_path = model_files(stages, encoder, torch)
    embeddings = native_run(stages, bin_path)
    compare_hosts(stages, encoder, onnx_path, bin_path, embeddings, torch)
    read_text(stages)
    one_page(stages, onnx_path, bin_path)
    print()
    table("opforge demo", ("stage", "", "figures", "time"), stages.rows)
    print(f"\nfiles are in {OUT}")
    return 0 if stages.passed else 1


def sentence_model(stages: Stages) -> minilm.SentenceEncoder:
    """Declare, check and train."""
    started = time.perf_counter()
    encoder = minilm.SentenceEncoder()
    count = minilm.with_custom_gelu(encoder)
    stages.add("declare", count == 6, f"CustomGELU in place of {count} activations of MiniLM", started)
    started = time.perf_counter()
    report = of.check(minilm.custom_gelu, level="quick")
    keep("check", {"passed": report.passed, "reports": [report.as_dict()]})
    stages.add("check", report.passed, report.summary(), started)
    started = time.perf_counter()
    losses = minilm.train(encoder, sentences.PAIRS, steps=6)
    falls = losses[-1] < 0.9 * losses[0]
    stages.add("train in PyTorch", falls, f"loss {losses[0]:.4f} -> {losses[-1]:.4f} in 6 steps", started)
    return encoder


def model_files(stages: Stages, encoder: minilm.SentenceEncoder, torch: Any) -> tuple[Path, Path]:
    """Export, simplify and compile."""
    import onnx

    started = time.perf_counter()
    tokens = minilm.tokenize(sentences.CORPUS)
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=512)
    shapes = {name: {0: batch, 1: length} for name in tokens}
    exported = OUT / "minilm.onnx"
    model = of.torch.export(
        encoder,
        tuple(torch.from_numpy(value) for value in tokens.values()),
        exported,
        dynamic_shapes=shapes,
        input_names=list(tokens),
        output_names=["embedding"],
    )
    gelus = sum(node.op_type == "CustomGELU" for node in model.graph.node)
    stages.add(
        "export to ONNX",
        gelus == 6,
        f"{len(model.graph.node)} nodes, {gelus} of com.example, {megabytes(exported)}",
        started,
    )
    started = time.perf_counter()
    simplified = OUT / "minilm.simplified.onnx"
    smaller = of.onnx.simplify(model)
    onnx.save(smaller, str(simplified))
    kept = sum(node.op_type == "CustomGELU" for node in smaller.graph.node)
    stages.add("simplify", kept == 6, f"{len(model.graph.node)} -> {len(smaller.graph.node)} nodes", started)
    started = time.perf_counter()
    target = OUT / "minilm.bin"
    of.compile(simplified, target)
    stages.add("compile to .bin", target.exists(), f"{megabytes(target)}, no framework and no plugin needed", started)
    return simplified, target


def native_run(stages: Stages, bin_path: Path) -> np.ndarray:
    """Embed the corpus and the queries with the C++ program, which knows no Python."""
    started = time.perf_counter()
    tokens = minilm.tokenize(sentences.CORPUS + sentences.QUERIES)
    command = [str(library_dir() / "opforge-run"), str(bin_path), "--output-dir", str(OUT)]
    for name, value in tokens.items():
        np.save(OUT / f"{name}.npy", value)
        command += ["--input", f"{name}={OUT / f'{name}.npy'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"opforge-run failed:\n{done.stdout}{done.stderr}")
    embeddings = np.load(OUT / "embedding.npy")
    corpus, queries = embeddings[: len(sentences.CORPUS)], embeddings[len(sentences.CORPUS) :]
    nearest = (queries @ corpus.T).argmax(1)
    stages.add(
        "run in C++",
        nearest.tolist() == sentences.EXPECTED,
        f"{len(embeddings)} sentences embedded by opforge-run",
        started,
    )
    for query, index, row in zip(sentences.QUERIES, nearest, queries @ corpus.T, strict=True):
        print(f"    {query}\n      -> {sentences.CORPUS[index]} ({row[index]:.2f})")
    return embeddings


def compare_hosts(
    stages: Stages, encoder: minilm.SentenceEncoder, onnx_path: Path, bin_path: Path, embeddings: np.ndarray, torch: Any
) -> None:
    """Hold the .bin against PyTorch and against ONNX Runtime on the function body; time all three."""
    started = time.perf_counter()
    tokens = minilm.tokenize(sentences.CORPUS + sentences.QUERIES)
    tensors = {name: torch.from_numpy(value) for name, value in tokens.items()}
    with torch.no_grad():
        expected = encoder(**tensors).numpy()
    error = float(np.abs(embeddings - expected).max())
    stages.add("equals PyTorch", error < 1e-5, f"max |error| {error:.1e}", started)
    started = time.perf_counter()
    result = of.compare(
        onnx_path, tokens, engines={"opforge": bin_path, "onnxruntime": onnx_path}, rtol=1e-4, atol=1e-5
    )
    keep("compare", result.as_dict())
    stages.add(
        "equals ONNX Runtime",
        result.passed,
        f"max |error| {max(r.difference.max_abs for r in result.rows):.1e}",
        started,
    )
    started = time.perf_counter()
    figures = latency(encoder, onnx_path, bin_path, torch)
    stages.add(
        "latency, 1 sentence, 1 thread", True, ", ".join(f"{name} {ms:.2f} ms" for name, ms in figures.items()), started
    )


def latency(encoder: minilm.SentenceEncoder, onnx_path: Path, bin_path: Path, torch: Any) -> dict[str, float]:
    """Median time of one sentence on one thread; the benchmarks measure with more care."""
    from opforge.verify import find_engine

    tokens = minilm.tokenize(sentences.QUERIES[:1])
    session = of.Session(bin_path, threads=1)
    runtime = find_engine("onnxruntime").load(onnx_path, threads=1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    tensors = {name: torch.from_numpy(value) for name, value in tokens.items()}
    with torch.no_grad():
        figures = {
            "opforge": median_ms(lambda: session.run(tokens)),
            "onnxruntime": median_ms(lambda: runtime.run(tokens)),
            "torch": median_ms(lambda: encoder(**tensors)),
        }
    torch.set_num_threads(threads)
    return figures


def read_text(stages: Stages) -> None:
    """Compile PP-OCRv4's recognition network and read a line of text with it."""
    started = time.perf_counter()
    line = "Declare once, run anywhere: 4.3x"
    image = ocr.render(line)
    image.save(OUT / "line.png")
    target = OUT / "ocr_rec.bin"
    of.compile(ocr.model_path(), target)
    session = of.Session(target)
    (output,) = session.run({session.inputs[0].name: ocr.to_input(image)}).values()
    text = ocr.decode(output, ocr.model_path())
    stages.add("read a line of text", text == line, f"PP-OCRv4 .bin ({megabytes(target)}) read {text!r}", started)


def keep(command: str, content: dict[str, Any]) -> None:
    """Write what a command would print with --json, for the report."""
    (OUT / f"{command}.json").write_text(json.dumps(content, default=lambda value: value.item()), encoding="utf-8")


def one_page(stages: Stages, onnx_path: Path, bin_path: Path) -> None:
    """Time the model in both engines, and gather everything on one page, a short stress of the .bin with it."""
    from opforge.verify.benchmark import time_engines

    started = time.perf_counter()
    tokens = minilm.tokenize(sentences.QUERIES[:1])
    timing = time_engines(onnx_path, lambda _: tokens, ["opforge", "onnxruntime"], rounds=5, threads=1)
    keep("bench", {"model": str(onnx_path), **timing.as_dict()})
    opforge = [sys.executable, "-m", "opforge"]
    found = subprocess.run([*opforge, "inspect", str(onnx_path), "--nodes", "--json"], capture_output=True, check=False)
    (OUT / "inspect.json").write_bytes(found.stdout)
    results = [str(OUT / f"{name}.json") for name in ("check", "compare", "bench", "inspect")]
    parts = [word for name in ("profile", "stress", "inspect", "memory") for word in ("--only", name)]
    options = ["--duration", "2", "--size", "batch=4", "--size", "length=16", "--title", "MiniLM with CustomGELU"]
    page = OUT / "report.html"
    made = subprocess.run([*opforge, "report", *results, str(bin_path), *parts, *options, "-o", str(page)], check=False)
    stages.add("report", made.returncode == 0, f"everything on one page, {page.name}", started)


if __name__ == "__main__":
    sys.exit(main())
