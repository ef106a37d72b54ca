"""Write what runs where into docs/engines.md: operators by dtype, and whole models, each tried in each engine.

What was found, with the versions of the engines, is kept in tests/data/engines.json, and the page's tables follow from
it. Engines that are not here keep the rows they have. ``--check`` says whether the page is what the file gives;
tests/conformance/test_engines.py tries all again and holds it against the file.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

PAGE = ROOT / "docs" / "engines.md"
FOUND = ROOT / "tests" / "data" / "engines.json"
BLOCK = re.compile(r"(<!-- engines and (operators|models) -->\n).*?(<!-- end of it -->)", re.DOTALL)
DTYPES = ("f16", "bf16", "f32", "f64", "i32", "i64")
_LONGEST = 240
_SINGLE = 1e-9
"""An error that only arithmetic in less than float64 makes."""


def short(reason: str, dtypes: str = "") -> str:
    """The engine's own words where there are some, on one line without what differs from run to run."""
    error = re.search(r"max \|error\| (\S+) at .*?allowed ", reason, re.DOTALL)
    if error:
        wide = dtypes.startswith("f64") and float(error[1]) > _SINGLE
        return "float64 is computed in less" if wide else "less exact than the operator's tolerance"
    lines = reason.splitlines()
    starts = [k for k, line in enumerate(lines) if line.startswith("  got: ")]
    text = re.sub(r"^\S+: ", "", lines[0])
    if starts:
        first, rest = lines[starts[0]].removeprefix("  got: ").strip(), lines[starts[0] + 1 :]
        nodes = [m for line in rest if (m := re.match(r"    (?:(\w+) \([^)]*\)|(input \S+|output \S+)): (.*)", line))]
        text = first or _grouped([(m[1] or f"{m[2].split()[0]}s", m[3]) for m in nodes]) or text
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r"^(\w+) \([^)]*\): ", r"\1: ", text)  # the name of a node says nothing of its kind
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from \S+ failed:| with name ''|Name:'' ", "", text)
    text = re.sub(r"\S*/(\S+\.(?:cc|cpp|h|py|onnx)\b)", r"\1", text).replace("|", "/").strip()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3].rsplit(" ", 1)[0] + " ..."


def _grouped(rows: list[tuple[str, str]]) -> str:
    """What is said of nodes, once, with the kinds of nodes that it is said of."""
    found: dict[str, dict[str, None]] = {}
    for kind, words in rows:
        found.setdefault(re.sub(r"^\S+ is (\w+): ", r"\1: ", words), {})[kind] = None
    return "; ".join(f"{', '.join(kinds)}: {words}" for words, kinds in found.items())


def try_operators(engine: str) -> list[list[Any]]:
    """Rows of an engine: operator, dtypes, whether it runs, reason."""
    import opforge
    from opforge.verify.support import engine_support

    operators = [o for o in opforge.load("opforge.ops") if "Grad" not in o.name]
    return [
        [row.operator, row.dtypes, row.passed, "" if row.passed else short(row.reason, row.dtypes)]
        for row in engine_support(operators, [engine])
    ]


def try_models(engine: str) -> list[list[Any]]:
    """Rows of an engine: model, whether it gives the reference's results, reason."""
    from tests.models import MODELS
    from tests.models.running import outcome

    found = [(name, *outcome(name, engine)) for name in MODELS]
    return [[name, passed, "" if passed else short(reason)] for name, passed, reason in found]


def _reasons(rows: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str], tuple[int, list[str]]]:
    """Number the reasons: (engine, reason) -> number and what they are about."""
    found: dict[tuple[str, str], tuple[int, list[str]]] = {}
    for engine, reason, about in rows:
        found.setdefault((engine, reason), (len(found) + 1, []))[1].append(about)
    return found


def _reason_table(reasons: dict[tuple[str, str], tuple[int, list[str]]]) -> list[str]:
    lines = ["", "| | engine | what | why not |", "|---|---|---|---|"]
    lines += [
        f"| {number} | {engine} | {'; '.join(about)} | {reason} |"
        for (engine, reason), (number, about) in reasons.items()
    ]
    return lines


def operators_table(found: dict[str, Any]) -> str:
    """One row per operator, one column per engine: the dtypes in which it runs, and numbers of reasons."""
    engines = list(found["engines"])
    cells: dict[tuple[str, str], list[list[Any]]] = {}
    for engine in engines:
        for row in found["engines"][engine]["operators"]:
            cells.setdefault((row[0], engine), []).append(row)
    operators = sorted({operator for operator, _ in cells})
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for (operator, engine), rows in sorted(cells.items()):
        for _, dtypes, passed, reason in rows:
            if not passed:
                grouped.setdefault((engine, reason, operator.partition("::")[2]), []).append(dtypes)
    numbered = _reasons((e, why, f"{operator} {', '.join(d)}") for (e, why, operator), d in sorted(grouped.items()))
    lines = [f"| operator | {' | '.join(engines)} |", f"|---|{'---|' * len(engines)}"]
    for operator in operators:
        line = []
        for engine in engines:
            rows = cells.get((operator, engine), [])
            good = [row[1] for row in rows if row[2]]
            text = "all" if rows and len(good) == len(rows) else ", ".join(good) or "no"
            numbers = sorted({numbered[engine, row[3]][0] for row in rows if not row[2]})
            line.append(text + "".join(f" [{number}]" for number in numbers))
        lines.append(f"| {operator} | {' | '.join(line)} |")
    return "\n".join([*lines, *(_reason_table(numbered) if numbered else [])]) + "\n"


def models_table(found: dict[str, Any]) -> str:
    """One row per model, one column per engine: yes, or the number of a reason."""
    engines = list(found["engines"])
    rows = {(row[0], engine): row for engine in engines for row in found["engines"][engine]["models"]}
    models = list(dict.fromkeys(model for model, _ in rows))
    numbered = _reasons((e, row[2], model) for (model, e), row in rows.items() if not row[1])
    lines = [f"| model | {' | '.join(engines)} |", f"|---|{'---|' * len(engines)}"]
    for model in models:
        cells = []
        for engine in engines:
            row = rows.get((model, engine))
            cells.append("" if row is None else "yes" if row[1] else f"no [{numbered[engine, row[2]][0]}]")
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join([*lines, *(_reason_table(numbered) if numbered else [])]) + "\n"


def versions_line(found: dict[str, Any]) -> str:
    """The versions that the tables are about."""
    return (
        "Found with " + ", ".join(f"{n} {e['version']}" for n, e in found["engines"].items() if n != "opforge") + ".\n"
    )


def page_text(found: dict[str, Any], text: str) -> str:
    """The page with its tables written anew."""
    tables = {"operators": operators_table(found), "models": models_table(found)}
    text = BLOCK.sub(lambda m: m[1] + tables[m[2]] + m[3], text)
    return re.sub(r"(?m)^Found with .*\n", lambda _m: versions_line(found), text)


def try_all(known: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Try the named engines, or all; those that are not here keep what the file says."""
    from opforge.verify import engines

    rows = dict(known.get("engines", {}))
    for name, engine in engines().items():
        state = engine.availability()
        if name == "reference" or not state.ok or (names and name not in names):
            continue
        rows[name] = {"version": state.version, "operators": try_operators(name), "models": try_models(name)}
        print(name, flush=True)
    order = [name for name in engines() if name in rows]
    return {"engines": {name: rows[name] for name in order}}


def main(arguments: list[str] | None = None) -> int:
    """Try, and write the file and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engines", nargs="*", help="only these")
    parser.add_argument("--check", action="store_true", help="only hold the page against the file")
    parser.add_argument("--page", action="store_true", help="only write the page from the file")
    given = parser.parse_args(arguments)
    found = json.loads(FOUND.read_text(encoding="utf-8")) if FOUND.is_file() else {}
    before = PAGE.read_text(encoding="utf-8")
    if given.check:
        fresh = page_text(found, before) == before
        print("fresh" if fresh else f"{PAGE.relative_to(ROOT)} is stale: run python tools/engine_table.py --page")
        return 0 if fresh else 1
    if not given.page:
        found = try_all(found, given.engines)
        FOUND.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page_text(found, before), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
