"""The table of the device check: figures against what the same run measured as ceilings, and against the aims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["aims", "markdown"]

OURS: Final = "opforge"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Aim:
    """One figure to aim at.

    Attributes:
        case: exactly, or its beginning with `every`.
        peer: whose time ours is held against; "" = the measured copy bandwidth.
        limit: at least this much: peer's time over ours, or the part of the bandwidth.
        every: for all cases that begin so.
    """

    case: str
    peer: str
    limit: float
    every: bool = False


AIMS: Final = (
    *(Aim(f"{name} 256 MiB", "", 0.85, every=True) for name in ("gelu", "swish", "mish")),
    Aim("sparse matmul f32", "torch.mm (cuBLAS)", 4.3),
    Aim("sparse matmul f32", "torch CSR (cuSPARSE)", 1.0),
    Aim("call 1 KiB f32", "load_inline", 1 / 1.1),
)


def aims(rows: Sequence[Row]) -> Iterator[tuple[str, str, str, str]]:
    """Give (what, aimed at, found, verdict) for each aim; what was not measured says so."""
    copied = _bandwidth(rows)
    for aim in AIMS:
        cases = list(dict.fromkeys(r["case"] for r in rows if aim.every and r["case"].startswith(aim.case)))
        for case in cases or [aim.case]:
            ours = _row(rows, case, OURS)
            if aim.peer:
                other = _row(rows, case, aim.peer)
                text, wanted = f"{case}: {aim.peer} / opforge", f">= {aim.limit:.2f}"
                found = other["seconds"] / ours["seconds"] if ours and other and ours["seconds"] else None
            else:
                text, wanted = f"{case}: part of the copy bandwidth", f">= {aim.limit:.0%}"
                found = ours["bytes"] / ours["seconds"] / copied if ours and copied and ours["seconds"] else None
            shown = "not measured" if found is None else f"{found:.2f}" if aim.peer else f"{found:.0%}"
            yield text, wanted, shown, "" if found is None else "reached" if found >= aim.limit else "FALLS SHORT"


def markdown(content: Mapping[str, Any]) -> str:
    """Write everything as Markdown."""
    lines = ["# Device check", ""]
    if content.get("rehearsal"):
        lines += ["A rehearsal on a CPU: kernels are emulated, figures mean nothing.", ""]
    if not content["gpu"]:
        return "\n".join([*lines, f"no GPU: {content['reason']}", ""])
    for device in content.get("machine", {}).get("devices", []):
        lines += [f"{device['name']}, sm_{device['architecture']}, {device['memory'] / 2**30:.0f} GiB, "
                  f"driver for CUDA {device['driver']}", ""]  # fmt: skip
    lines += _table(("part", "state", "s", "what"), map(_part, content["parts"]))
    rows = content["rows"]
    if rows:
        if not content.get("rehearsal"):
            lines += _table(("aim", "wanted", "found", "verdict"), aims(rows))
        heads = ("case", "who", "us", "8 of 10", "GB/s", "% copy", "GFLOP/s", "% matmul", "time / opforge's")
        lines += _table(heads, _figures(rows))
    return "\n".join(lines)


def _part(part: Row) -> tuple[str, str, str, str]:
    last = next((line for line in reversed(part.get("log", "").splitlines()) if line.strip()), "")
    seconds = f"{part['seconds']:.1f}" if "seconds" in part else ""
    return part["name"], part["state"], seconds, part.get("why", last)[:140]


def _figures(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    copied = _bandwidth(rows)
    for row in rows:
        if "seconds" not in row:
            yield row["case"], row["participant"], row.get("left_out", ""), "", "", "", "", "", ""
            continue
        seconds = max(row["seconds"], 1e-12)
        ours = _row(rows, row["case"], OURS)
        spread = f"{row['low'] * 1e6:.1f} to {row['high'] * 1e6:.1f}"
        if row.get("host") or "bytes" not in row:
            speed = rate = part = whole = ""
        else:
            bandwidth, flops = row["bytes"] / seconds, row["flops"] / seconds
            speed, rate = f"{bandwidth / 1e9:.0f}", f"{flops / 1e9:.0f}" if flops else ""
            part = f"{bandwidth / copied:.0%}" if copied else ""
            ceiling = _row(rows, f"matmul {row.get('dtype', 'f32')}", "torch.mm")
            fastest = ceiling["flops"] / ceiling["seconds"] if ceiling and ceiling["seconds"] else 0
            whole = f"{flops / fastest:.1%}" if fastest and flops else ""
        ratio = f"{seconds / ours['seconds']:.2f}" if ours and ours["seconds"] else ""
        yield row["case"], row["participant"], f"{seconds * 1e6:.2f}", spread, speed, part, rate, whole, ratio


def _row(rows: Sequence[Row], case: str, participant: str) -> Row | None:
    return next((r for r in rows if r["case"] == case and r["participant"] == participant and "seconds" in r), None)


def _bandwidth(rows: Sequence[Row]) -> float:
    copy = _row(rows, "copy", "torch copy")
    return copy["bytes"] / copy["seconds"] if copy and copy["seconds"] else 0.0


def _table(heads: Sequence[str], rows: Iterator[tuple[str, ...]] | Any) -> list[str]:  # noqa: ANN401 - an iterable
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for row in rows:
        cells = [str(cell).replace("|", "\\|").replace("\n", " ") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]
