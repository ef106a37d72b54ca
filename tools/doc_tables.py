"""Write the tables of the documentation that follow from the source; ``--check`` reports stale ones.

A table stands between ``<!-- table NAME -->`` and ``<!-- end of table -->``.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

_TABLE = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
_ULP = re.compile(r"^ULP_\w+\((\w+), ([\d.]+), ([\d.]+)\)", re.MULTILINE)


def _rows(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows]) + "\n"


def _bounds() -> dict[str, str]:
    rows = _ULP.findall((ROOT / "include/opforge/vector_math_ulp.def").read_text(encoding="utf-8"))
    return {name: f32 if f32 == f64 else f"{f32}, {f64}" for name, f32, f64 in rows}


def functions() -> str:
    """What a formula may call, with the error bounds of f32 and f64."""
    import opforge
    from opforge.expr import functions as defined

    bounds = _bounds()
    names = [n for n in opforge._FUNCTIONS if callable(getattr(defined, n))]
    rows = []
    for name in names:
        function = getattr(defined, name)
        text = (inspect.getdoc(function) or "").split("\n")[0].rstrip(".")
        # A docstring begins with a capital, a variable does not.
        text = re.sub(r"^[XE]\b", lambda m: m[0].lower(), text)
        rows.append((f"`of.{name}({', '.join(inspect.signature(function).parameters)})`", text, bounds.get(name, "")))
    return _rows(("function", "meaning", "error in f32, f64, ULP"), rows)


def kinks() -> str:
    """The choices of derivatives, from the table that makes them."""
    from opforge.expr import derivative_rules

    lines = [line.strip() for line in (derivative_rules.__doc__ or "").splitlines() if line.startswith("|")]
    return "\n".join(lines) + "\n"


def _coverage() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the standard operators by what serves them, and the others by the reason."""
    import onnx

    from opforge.bin.lowering import coverage

    served: dict[str, list[str]] = {}
    others: dict[str, list[str]] = {}
    for schema in sorted(onnx.defs.get_all_schemas(), key=lambda s: (s.domain, s.name)):
        if schema.deprecated:
            continue
        by = coverage.served_by(schema.name, schema.domain)
        name = f"{schema.domain}::{schema.name}" if schema.domain else schema.name
        if by is not None:
            served.setdefault(by, []).append(name)
        else:
            others.setdefault(coverage.reason(schema.domain, schema.name), []).append(name)
    return served, others


def onnx_operators() -> str:
    """Standard operators that a .bin can hold, by what serves them."""
    rows = [(by, ", ".join(names)) for by, names in sorted(_coverage()[0].items(), key=lambda r: -len(r[1]))]
    return _rows(("served by", "operators"), rows)


def onnx_unsupported() -> str:
    """Standard operators that a .bin cannot hold, with the reason."""
    rows = [(", ".join(names), why) for why, names in sorted(_coverage()[1].items(), key=lambda r: r[1])]
    return _rows(("operators", "why not"), rows)


def library() -> str:
    """The operators that come with opforge."""
    from opforge import ops

    rows = []
    for name in ops.__all__:
        operator = getattr(ops, name)
        kind = "formula" if operator.is_formula else "kernel"
        folder = Path(operator.declared_at.rpartition(":")[0]).parent.name
        link = f"[{name}](../src/opforge/ops/{folder}/README.md)"
        rows.append((link, f"`{operator.qualified_name}`", kind, f"`{operator.signature}`"))
    return _rows(("`of.ops`", "operator", "kind", "signature"), rows)


def litert_operators() -> str:
    """Standard operators that can be written for LiteRT."""
    from opforge.engines.litert.writer import ROWS

    return ", ".join(f"`{name}`" for name in sorted(ROWS)) + "\n"


def advice() -> str:
    """The rules by which profiles are looked at."""
    from opforge.profiling import RULES

    rows = [
        (rule.name, f"{'below' if rule.below else 'from'} {rule.threshold:g} {rule.unit}", rule.hint) for rule in RULES
    ]
    return _rows(("rule", "looks at figures", "what may be done"), rows)


def errors() -> str:
    """The exception classes."""
    from opforge import errors as defined

    rows = []
    for name in defined.__all__:
        kind = getattr(defined, name)
        if not issubclass(kind, defined.OpforgeError) or kind is defined.OpforgeError:
            continue
        bases = [b.__name__ for b in kind.__mro__[1:] if b.__module__ == "builtins" and b is not object]
        rows.append((f"`{name}`", f"`{bases[0]}`", (kind.__doc__ or "").split("\n")[0].rstrip(".")))
    return _rows(("class", "also a", "when"), rows)


def commands() -> str:
    """The commands of the command line."""
    from importlib import import_module

    import click

    from opforge.cli._app import _group

    rows = []
    for name in _group.list_commands(click.Context(_group)):
        command = import_module(f"opforge.cli.commands.{name}").command
        options = [f"`{max(p.opts, key=len)}`" for p in command.params if isinstance(p, click.Option)]
        rows.append((f"`opforge {name}`", command.get_short_help_str(100).rstrip("."), " ".join(options)))
    return _rows(("command", "what it does", "options"), rows)


def metrics() -> str:
    """What is exposed of watched sessions."""
    from opforge.monitor import METRICS

    rows = [
        (f"`{m.name}`", m.kind, " ".join(f"`{label}`" for label in m.labels), m.help.rstrip("."))
        for m in METRICS.values()
    ]
    return _rows(("metric", "kind", "further labels", "is"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "advice": advice,
    "commands": commands,
    "errors": errors,
    "functions": functions,
    "kinks": kinks,
    "library": library,
    "litert_operators": litert_operators,
    "metrics": metrics,
    "onnx_operators": onnx_operators,
    "onnx_unsupported": onnx_unsupported,
}


def main() -> int:
    """Write what is stale, or report it."""
    check = "--check" in sys.argv[1:]
    stale = False
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        new = _TABLE.sub(lambda m: f"{m[1]}{TABLES[m[2]]()}{m[3]}", text)
        if new == text:
            continue
        stale = True
        if check:
            print(f"{page.relative_to(ROOT)} is stale: run python tools/doc_tables.py", file=sys.stderr)
        else:
            page.write_text(new, encoding="utf-8")
            print(f"wrote {page.relative_to(ROOT)}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
