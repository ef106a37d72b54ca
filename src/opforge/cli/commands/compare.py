"""``opforge compare``: the same inputs through several engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opforge._files import whole_file
from opforge.cli._comparison import print_comparison, write_markdown
from opforge.cli._output import emit, json_option, json_text, progress
from opforge.cli._targets import (
    call_factory,
    load_factory,
    load_packages,
    parse_inputs,
    parse_ranges,
    parse_sizes,
    parse_tolerances,
    parse_values,
)
from opforge.errors import ArgumentError

if TYPE_CHECKING:
    from opforge.verify import Comparison
    from opforge.verify._runs import Runner
    from opforge.verify.bisection import Finding
    from opforge.verify.precision import Precision

__all__ = ["command"]

_EPILOG = """\b
Examples:
  opforge compare model.onnx --package my_gate            opforge against ONNX Runtime
  opforge compare model.onnx --engine opforge --engine reference     against ONNX's own evaluator
  opforge compare model.onnx --engine all                 every engine that is here
  opforge compare model.onnx --engine all --bisect        and the node at which one differs
  opforge compare model.onnx --data test_data --precision --output report.md
  opforge compare model.onnx --bin model.bin --size N=64
  opforge compare model.onnx --torch net.py:make          also against the torch module
"""


@click.command("compare", short_help="The same inputs through several engines.", epilog=_EPILOG)
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--engine",
    "names",
    multiple=True,
    help="Engine, repeatable, or all that are here; the last is the reference. [default: opforge, onnxruntime; "
    "or ONNX's own evaluator, `reference`, where a custom node has no body]",
)
@click.option(
    "--bin",
    "bin_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A .bin that opforge runs instead of compiling MODEL.",
)
@click.option("--torch", "factory", help="module.py:factory that returns a module, or (module, example inputs, ...).")
@click.option("--input", "words", multiple=True, help="NAME=FILE.npy, repeatable.")
@click.option(
    "--npz", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="All inputs in one .npz file."
)
@click.option(
    "--data",
    "folders",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Folder of .npz files, of INPUT.npy files, or of ONNX's test_data_set_*; outputs in it are the reference.",
)
@click.option("--sets", default=1, show_default=True, type=click.IntRange(1), help="Sets of random inputs.")
@click.option("--size", "sizes", multiple=True, help="NAME=NUMBER: a named dimension of random inputs.")
@click.option("--seed", default=0, show_default=True, help="Seed of random inputs; further sets take the next ones.")
@click.option("--range", "ranges", multiple=True, help="[INPUT=]LOW:HIGH of random values.")
@click.option(
    "--values",
    "kinds",
    multiple=True,
    help="[INPUT=]CLASS of random values: normal, uniform, positive, zeros, ones, large, tiny, wide, special "
    "(NaN and infinities among them).",
)
@click.option("--rtol", type=float, help="Allowed error relative to the reference. [default: 1e-4 for float32]")
@click.option("--atol", type=float, help="Allowed absolute error. [default: 1e-5 for float32]")
@click.option(
    "--tolerance", "limits", multiple=True, help="NAME=RTOL,ATOL for an output, an operator or a dtype; repeatable."
)
@click.option("--threads", type=click.IntRange(1), help="Threads per engine.")
@click.option("--package", "packages", multiple=True, help="Package or folder with operators that MODEL uses.")
@click.option("--bisect", is_flag=True, help="Search for the first node at which an engine that failed differs.")
@click.option("--precision", "precise", is_flag=True, help="Measure every node's own error against float64.")
@click.option("--worst", default=10, show_default=True, type=click.IntRange(1), help="Nodes that --precision shows.")
@click.option(
    "--isolate/--in-process",
    default=True,
    show_default=True,
    help="Run other people's engines, and opforge for kernels of authors, in a process each: a crash is a finding.",
)
@click.option("--timeout", type=float, help="Seconds that such a process may take to load or to run.")
@click.option(
    "--output",
    "-o",
    "targets",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the result to this .json or .md file; repeatable.",
)
@json_option
def command(
    model: Path,
    names: tuple[str, ...],
    bin_path: Path | None,
    factory: str | None,
    words: tuple[str, ...],
    npz: Path | None,
    folders: tuple[Path, ...],
    sets: int,
    sizes: tuple[str, ...],
    seed: int,
    ranges: tuple[str, ...],
    kinds: tuple[str, ...],
    rtol: float | None,
    atol: float | None,
    limits: tuple[str, ...],
    threads: int | None,
    packages: tuple[str, ...],
    bisect: bool,
    precise: bool,
    worst: int,
    isolate: bool,
    timeout: float | None,
    targets: tuple[Path, ...],
    as_json: bool,
) -> int:
    """Run MODEL on the same inputs in every engine; exit 1 when outputs differ by more than the tolerance.

    An output passes when |error| <= atol + rtol * |reference| everywhere, shapes and dtypes agree, and NaN and
    infinities stand at the same places. Of several input sets the worst is shown. Inputs are random by the model's
    declared shapes unless --input, --npz or --data gives them.
    """
    from opforge.verify import compare

    if sum((bool(words), npz is not None, bool(folders))) > 1:
        raise ArgumentError("give one of --input, --npz and --data", where="compare")
    strange = [str(path) for path in targets if path.suffix not in (".json", ".md")]
    if strange:
        raise ArgumentError("this kind of report is not written", where="compare", expected=".json or .md", got=strange)
    load_packages(packages)
    engines, skipped = _engines(model, names, bin_path, factory)
    tolerances: dict[str, Any] = {"rtol": rtol, "atol": atol, "tolerances": parse_tolerances(limits)}
    hosted: dict[str, Any] = {"threads": threads, "isolate": isolate, "packages": packages}
    with progress("running the engines", as_json) as told:
        result = compare(
            model,
            npz or (parse_inputs(words) if words else list(folders) or None),
            engines=engines,
            optional=() if skipped is None else set(engines) - {*names, "torch"},
            seed=seed,
            sets=sets,
            sizes=parse_sizes(sizes),
            ranges=parse_ranges(ranges),
            values=parse_values(kinds),
            timeout=timeout,
            **tolerances,
            **hosted,
        )
        result.skipped = {**(skipped or {}), **result.skipped}
        inside = [name for name, source in engines.items() if source == model]
        findings = _bisect(model, result, inside, told, tolerances | hosted) if bisect else []
        precision = _precision(model, result, inside, hosted) if precise else None
    content = {"model": str(model), **result.as_dict()}
    if bisect:
        content["bisection"] = [finding.as_dict() for finding in findings]
    if precision is not None:
        content["precision"] = precision.as_dict()
    for path in targets:
        markdown = path.suffix == ".md"
        text = write_markdown(model.name, result, findings, precision, worst) if markdown else json_text(content) + "\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    emit(content, as_json, lambda: print_comparison(result, findings, precision, worst))
    return 0 if result.passed else 1


def _bisect(
    model: Path, result: Comparison, inside: list[str], told: Callable[[str], None], options: dict[str, Any]
) -> list[Finding]:
    """Search in every engine that failed and runs MODEL itself, on the inputs of its worst row."""
    from opforge.verify.bisection import first_difference

    reference = result.reference if result.reference in inside else "reference"
    found = []
    for engine in dict.fromkeys(row.engine for row in result.rows if not row.passed and row.engine in inside):
        rows = [row for row in result.rows if row.engine == engine and not row.passed and row.dtype]
        if rows:
            row = max(rows, key=lambda row: row.difference.margin)
            inputs = result.inputs[row.input_set]
            found.append(first_difference(model, inputs, engine=engine, reference=reference, told=told, **options))
    return found


def _precision(model: Path, result: Comparison, inside: list[str], hosted: dict[str, Any]) -> Precision:
    """Measure the engines that ran MODEL itself, on the first inputs."""
    from opforge.verify.precision import precision

    names = [name for name in result.outputs if name in inside and name != "reference"]
    return precision(model, result.inputs[result.input_sets[0]], names, **hosted)


def _engines(
    model: Path, names: tuple[str, ...], bin_path: Path | None, factory: str | None
) -> tuple[dict[str, str | Path | Runner], dict[str, str] | None]:
    """Give what runs the model, and the engines that `all` leaves out (None where it is not asked for)."""
    from opforge.verify import choose_engines, default_engines

    found: dict[str, str | Path | Runner] = {}
    if factory:
        from opforge.verify.torch_runner import torch_runner

        made = call_factory(load_factory(factory), factory)
        found["torch"] = torch_runner(made[0] if isinstance(made, tuple) else made, model)
    chosen, skipped = choose_engines(names or default_engines(model), model)
    for name in chosen:
        if name == "torch" and factory is None:
            raise ArgumentError("the torch engine needs a module", where="compare", hint="--torch module.py:factory")
        found[name] = found.pop(name) if name in found else bin_path if name == "opforge" and bin_path else model
    return found, skipped if "all" in names else None
