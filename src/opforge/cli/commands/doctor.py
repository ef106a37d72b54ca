"""``opforge doctor``: what is here, what is missing, and how to get it."""

from __future__ import annotations

import click

from opforge.cli._output import emit, json_option, table

__all__ = ["command"]


@click.command("doctor", short_help="What is installed, what is missing, how to get it.")
@json_option
def command(as_json: bool) -> int:
    """Examine compiler, runtime, caches, frameworks and engines; exit 1 when something needed is missing."""
    from opforge.build.doctor import doctor_rows
    from opforge.verify import engines

    rows = [{"name": r.name, "state": r.state, "detail": r.detail, "hint": r.hint} for r in doctor_rows()]
    known = {row["name"] for row in rows}
    for name, engine in engines().items():
        if name in known:
            continue  # its package has a row already
        found = engine.availability()
        state = "ok" if found.ok else "missing" if name == "opforge" else "optional"
        detail = "; ".join(filter(None, (found.version, found.reason)))
        rows.append({"name": f"engine {name}", "state": state, "detail": detail, "hint": found.hint})
    bad = [row["name"] for row in rows if row["state"] == "missing"]

    def text() -> None:
        words = {"ok": "ok", "missing": "MISSING", "optional": "not here"}
        table(None, ("what", "state", "detail"), [(r["name"], words[r["state"]], r["detail"]) for r in rows])
        for row in rows:
            if row["hint"]:
                click.echo(f"to get {row['name']}: {row['hint']}")
        click.echo(f"missing: {', '.join(bad)}" if bad else "nothing that is needed is missing")

    emit({"ok": not bad, "rows": rows}, as_json, text)
    return 1 if bad else 0
