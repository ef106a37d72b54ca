"""``opforge doctor``: what is here, what is missing, and how to get it."""

from __future__ import annotations

import click

from opforge.cli._output import emit, json_option, table

__all__ = ["command"]


@click.command("doctor")
@json_option
def command(as_json: bool) -> int:
    """Examine compiler, runtime, caches, frameworks and engines; exit 1 when something needed is missing."""
    from opforge.build.doctor import examine
    from opforge.verify import engines

    rows = [row.as_dict() for row in examine()]
    for name, engine in engines().items():
        state = engine.availability()
        rows.append(
            {
                "name": f"engine {name}",
                "ok": state.ok,
                "needed": name == "opforge",
                "detail": state.version if state.ok else state.reason,
                "hint": state.hint,
            }
        )
    bad = [row for row in rows if row["needed"] and not row["ok"]]

    def text() -> None:
        marks = {(True, True): "ok", (True, False): "ok", (False, True): "MISSING", (False, False): "not here"}
        table(None, ("what", "state", "detail", "how to get it"), [
            (r["name"], marks[bool(r["ok"]), bool(r["needed"])], r["detail"], "" if r["ok"] else r["hint"]) for r in rows
        ])
        click.echo(f"{len(bad)} needed things are missing" if bad else "nothing needed is missing")

    emit({"ok": not bad, "rows": rows}, as_json, text)
    return 1 if bad else 0
