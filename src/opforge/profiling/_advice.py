"""What stands out in a profile, as rows of data: a rule, its threshold, and the figure that passed it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from opforge.bin.program import Program
from opforge.profiling._rows import NodeRow, Profile

__all__ = ["RULES", "Advice", "Rule", "advise"]

Found = Iterator[tuple[str, float, str]]
"""Where, the figure, what to say of it."""


@dataclass(frozen=True)
class Advice:
    """Something that stands out.

    Attributes:
        rule: its name.
        where: a node, or "" for the model.
        figure: what was measured.
        threshold: what it passed.
        unit: of both.
        text: what was found.
        hint: what may be done.
    """

    rule: str
    where: str
    figure: float
    threshold: float
    unit: str
    text: str
    hint: str


@dataclass(frozen=True)
class Rule:
    """A way to find something: ``find`` yields figures, which count from ``threshold`` on (or below it)."""

    name: str
    threshold: float
    unit: str
    hint: str
    find: Callable[[Profile, Program | None], Found]
    below: bool = False


_LARGE = 0.05
"""Share from which on a single node is looked at."""


def _large(profile: Profile) -> Iterator[NodeRow]:
    yield from sorted((row for row in profile.rows if row.share >= _LARGE), key=lambda row: -row.share)


def _dominant(profile: Profile, program: Program | None) -> Found:
    for row in profile.rows if len(profile.rows) > 1 else ():
        yield row.name, row.share, f"one node of {len(profile.rows)}, {row.operator}, takes {row.share:.0%} of the time"


def _moves(moves: str, text: str) -> Callable[[Profile, Program | None], Found]:
    def find(profile: Profile, program: Program | None) -> Found:
        rows = sorted((row for row in profile.rows if row.moves == moves), key=lambda row: -row.share)
        most = f"; most of it {rows[0].operator} of {rows[0].name}" if rows else ""
        yield "", profile.share_of(moves), f"{len(rows)} nodes only {text}{most}"

    return find


def _intensity(profile: Profile, program: Program | None) -> Found:
    if profile.machine is None:
        return
    balance = profile.machine.flops_per_s / profile.machine.memory_bytes_per_s
    for row in _large(profile):
        if row.intensity is not None and not row.moves:
            text = (
                f"{row.operator} does {row.intensity:.2g} operations per byte, the machine {balance:.3g} in that time"
            )
            yield row.name, row.intensity / balance, text


def _below_roof(profile: Profile, program: Program | None) -> Found:
    for row in _large(profile):
        part = row.of_roof(profile.machine)
        if part is not None:
            yield row.name, part, f"{row.operator} reaches {part:.0%} of what the machine could at its intensity"


def _threads(profile: Profile, program: Program | None) -> Found:
    for row in _large(profile):
        if row.speedup is not None:
            text = f"{row.operator} is {row.speedup:.2f} times as fast with {profile.threads} threads as with one"
            yield row.name, row.speedup, text


def _small(profile: Profile, program: Program | None) -> Found:
    short = [row for row in profile.rows if row.p50_ns < 2000]
    share = sum(row.share for row in short)
    yield "", share, f"{len(short)} of {len(profile.rows)} nodes take less than 2 us a call"


def _outside(profile: Profile, program: Program | None) -> Found:
    if profile.outside is not None:
        text = f"{profile.outside:.0%} of a call lies outside of the nodes: inputs checked, outputs allocated, Python"
        yield "", profile.outside, text


def _jitter(profile: Profile, program: Program | None) -> Found:
    for row in _large(profile):
        if row.calls >= 100:
            yield (
                row.name,
                row.p99_ns / max(row.p50_ns, 1),
                f"p99 {row.p99_ns / 1e3:.1f} us, p50 {row.p50_ns / 1e3:.1f} us",
            )


_PRODUCTS = frozenset({"MatMul", "Conv", "ConvTranspose", "DequantizeMatMul"})


def _not_fused(profile: Profile, program: Program | None) -> Found:
    """Elementwise work that reads a product and was not done behind it, and why."""
    if program is None:
        return
    nodes = [node for graph in program.graphs for node in graph.nodes]
    maker = {value: node for node in nodes for value in node.outputs if value >= 0}
    readers: dict[int, int] = {}
    for node in nodes:
        for value in node.inputs:
            readers[value] = readers.get(value, 0) + 1
    outputs = {value for graph in program.graphs for value in graph.outputs}
    for row in profile.rows:
        node = nodes[row.node]
        if (node.domain, node.op) != ("opforge", "Formula"):
            continue
        for value in node.inputs:
            source = maker.get(value)
            if source is None or source.domain != "opforge" or source.op not in _PRODUCTS:
                continue
            name = program.values[value].name
            if value in outputs:
                reason = f"{name} is an output of the model"
            elif readers[value] > 1:
                reason = f"{name} is read by {readers[value]} nodes"
            else:
                reason = "the compiler has no fused form of it (operands that an epilogue does not take)"
            yield row.name, row.share, f"elementwise work behind {source.op} runs as a pass of its own: {reason}"
            break


RULES: tuple[Rule, ...] = (
    Rule("one node dominates", 0.4, "of the time", "begin here: nothing else can gain as much", _dominant),
    Rule(
        "copies", 0.1, "of the time",
        "reshape and transpose less: let producers write, or consumers read, the layout as it lies",
        _moves("copy", "move data"),
    ),
    Rule(
        "layout conversions", 0.05, "of the time",
        "operators between convolutions that need another layout cause these; replace or move them",
        _moves("layout", "change a layout"),
    ),
    Rule(
        "not fused", 0.02, "of the time", "read the product once, and not as an output, so that it is fused",
        _not_fused,
    ),
    Rule(
        "low arithmetic intensity", 0.25, "of the machine's operations per byte",
        "memory is the limit: fuse with neighbours, use smaller types, or work on fewer elements at a time",
        _intensity, below=True,
    ),
    Rule(
        "below the roof", 0.3, "of the roof",
        "neither memory nor arithmetic is the limit: shapes that fill no tile, short rows, work that is not counted",
        _below_roof, below=True,
    ),
    Rule(
        "threads do not help", 1.2, "times the speed of one thread",
        "too little work to share, or memory is the limit: use one thread per session and several sessions",
        _threads, below=True,
    ),
    Rule(
        "short nodes", 0.25, "of the time", "many small operators: join them in a formula, or use larger batches",
        _small,
    ),
    Rule("time outside of nodes", 0.2, "of a call", "run larger batches, or call from C++", _outside),
    Rule("unsteady", 2.0, "p99 over p50", "something else uses the machine: pin threads, or measure again", _jitter),
)  # fmt: skip
"""Every rule; the table of docs/profiling.md is made of it."""


def advise(profile: Profile, program: Program | None = None) -> list[Advice]:
    """Apply every rule; what comes first weighs most.

    Args:
        profile: complete but for its advice.
        program: of the .bin, where there is one: says why something is not fused.
    """
    found = []
    for rule in RULES:
        for where, figure, text in rule.find(profile, program):
            if figure < rule.threshold if rule.below else figure >= rule.threshold:
                found.append(Advice(rule.name, where, figure, rule.threshold, rule.unit, text, rule.hint))
    return found
