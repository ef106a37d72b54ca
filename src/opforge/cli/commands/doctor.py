"""``opforge doctor``: what is here, what is missing, and how to get it."""

from __future__ import annotations

import click

from opforge.cli._output import emit, json_option, table

__all__ = ["command"]


@click.command("doctor")
@json_option
def command(as_json: bool) -> int:
    """Examine compiler, runtime, caches, frameworks and engines; exit 1 when something needed is missing."""
    from opforge.build.doctor import doctor_rows
    from opforge.verify import engines

    rows = [{"name": r.name, "state": r.state, "detail": r.detail, "hint": r.hint} for r in doctor_rows()]
    for name, engine in engines().items():
        found = engine.availability()
        state = "ok" if found.ok else "missing" if name == "opforge" else "optional"
        rows.append({"name": f"engine {name}", "state": state, "detail": found.version or found.reason, "hint": found.hint})
    bad = [row for row in rows if row["state"] == "missing"]

    def text() -> None:
        heads = ("what", "state", "detail", "how to get it")
        words = {"ok": "ok", "missing": "MISSING", "optional": "not here"}
        table(None, heads, [(r["name"], words[r["state"]], r["detail"], r["hint"]) for r in rows])
        click.echo(f"{len(bad)} needed things are missing" if bad else "nothing needed is missing")

    emit({"ok": not bad, "rows": rows}, as_json, text)
    return 1 if bad else 0
