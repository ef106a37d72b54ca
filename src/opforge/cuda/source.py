"""From CUDA C++ to C++ that the emulator's headers compile: launches and shared variables, everything else as it is.

Lines keep their numbers. Comments, strings and character constants are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from opforge.errors import UnsupportedError

__all__ = ["Launched", "includes", "launches", "rewrite"]

_TOKENS = re.compile(
    r"""
    (?P<skip>//(?:\\\n|[^\n])* | /\*.*?\*/
        | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | R"(?P<d>[^\s()\\]{0,16})\(.*?\)(?P=d)")
    | (?P<launch><<<)
    | (?P<shared>\b(?:extern\s+)?__shared__\b)
    | (?P<missing>\b(?:asm|__asm__|wmma|cooperative_groups|cuda::barrier|cuda::pipeline|__cp_async\w*|__pipeline_\w+|
        tex[123]D\w*|cudaTextureObject_t|cub)\b)
    """,
    re.VERBOSE | re.DOTALL,
)
_NAMES = {
    "asm": "inline PTX",
    "__asm__": "inline PTX",
    "wmma": "warp matrix operations (wmma, mma)",
    "cooperative_groups": "cooperative groups",
    "cuda::barrier": "asynchronous barriers",
    "cuda::pipeline": "asynchronous copies",
    "cub": "CUB",
}
_ALIGNED = r"(?:\s*(?:__align__|alignas)\s*\((?P<alignment>[^()]*)\))?"
_DYNAMIC = re.compile(rf"extern\s+__shared__{_ALIGNED}\s*(?P<type>.+?)\s*\b(?P<name>\w+)\s*\[\s*\]\s*$", re.DOTALL)
_STATIC = re.compile(rf"__shared__{_ALIGNED}\s*(?P<rest>.+)$", re.DOTALL)
_DECLARATOR = re.compile(r"(?P<before>.*?)\b(?P<name>\w+)\s*(?P<sizes>(?:\[[^\]]*\]\s*)*)$", re.DOTALL)


@dataclass(frozen=True)
class _Edit:
    begin: int
    end: int
    text: str


def rewrite(text: str, path: str) -> str:
    """Return C++ for the emulator: what goes between its header and the end of the unit.

    Args:
        text: of the .cu file.
        path: of the file, for messages and ``#line``.

    Raises:
        UnsupportedError: the source uses what the emulator does not model; the message gives the line.
    """
    edits = sorted(_edits(text, path), key=lambda edit: edit.begin)
    pieces, at = [], 0
    for edit in edits:
        if edit.begin < at:
            raise _unsupported(text, edit.begin, path, "a launch or shared variable inside another")
        replaced = text[edit.begin : edit.end]
        lost = replaced.count("\n") - edit.text.count("\n")
        pieces += [text[at : edit.begin], edit.text, _newlines(text, edit.end, lost)]
        at = edit.end
    pieces.append(text[at:])
    return f'#line 1 "{_quoted(path)}"\n' + "".join(pieces)


def includes(text: str) -> Iterator[str]:
    """Give the names that the source includes in quotes."""
    yield from re.findall(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', text, re.MULTILINE)


@dataclass(frozen=True)
class Launched:
    """One launch in a source.

    Attributes:
        line: where its ``<<<`` stands.
        kernel: what is launched.
        configuration: blocks, threads, and where they are given shared memory and stream.
    """

    line: int
    kernel: str
    configuration: tuple[str, ...]


def launches(text: str) -> Iterator[Launched]:
    """Give every launch of a kernel in a source; comments and strings are passed over."""
    for found in _TOKENS.finditer(text):
        if found["launch"] is None:
            continue
        end = text.find(">>>", found.end())
        inner = text[found.end() : end if end >= 0 else found.end()]
        plain = re.sub(r"//[^\n]*|/\*.*?\*/", " ", inner, flags=re.DOTALL)
        parts = tuple(part.strip() for part in _split(plain))
        kernel = text[_callee(text, found.start()) : found.start()].strip()
        yield Launched(text.count("\n", 0, found.start()) + 1, kernel, parts)


def _newlines(text: str, end: int, count: int) -> str:
    """Newlines that make up for lost ones; inside a macro's definition they must be continued."""
    continued = text[:end].rpartition("\n")[0].endswith("\\")
    return ("\\\n" if continued else "\n") * max(count, 0)


def _edits(text: str, path: str) -> Iterator[_Edit]:
    position, guarded = 0, list(_guarded(text))
    while (found := _TOKENS.search(text, position)) is not None:
        position = found.end()
        if found["skip"] is not None:
            continue
        if found["missing"] is not None:
            if any(begin <= found.start() < end for begin, end in guarded):
                continue
            word = found["missing"]
            raise _unsupported(text, found.start(), path, _NAMES.get(word, word))
        edit = _launch(text, found, path) if found["launch"] is not None else _variables(text, found, path)
        position = edit.end
        yield edit


_GUARD = re.compile(r"#\s*(?:ifndef\s+|if\s+!\s*defined\s*\(?\s*)OPFORGE_CUDA_EMULATED\b")


def _guarded(text: str) -> Iterator[tuple[int, int]]:
    """Give the stretches that the emulator's compiler skips: between ``#ifndef OPFORGE_CUDA_EMULATED`` and its end."""
    begin, depth = -1, 0
    for line in re.finditer(r"^[ \t]*#[ \t]*(if|elif|else|endif)\w*[^\n]*", text, re.MULTILINE):
        word = line[1]
        if begin < 0:
            if _GUARD.match(line[0].strip()):
                begin, depth = line.start(), 1
            continue
        depth += {"if": 1, "endif": -1}.get(word, 0)
        if depth == 0 or (depth == 1 and word in ("elif", "else")):
            yield begin, line.end()
            begin = -1


def _launch(text: str, found: re.Match[str], path: str) -> _Edit:
    """``callee<<<configuration>>>(arguments)``."""
    begin = _callee(text, found.start())
    callee = text[begin : found.start()].strip()
    end = text.find(">>>", found.end())
    opening = re.compile(r"\s*\(").match(text, end + 3) if end >= 0 else None
    if not callee or opening is None:
        raise _unsupported(text, found.start(), path, "this way of launching a kernel")
    configuration = text[found.end() : end]
    closing = _closing(text, opening.end() - 1)
    if closing < 0:
        raise _unsupported(text, found.start(), path, "a launch without its closing parenthesis")
    arguments = text[opening.end() : closing]
    name = re.sub(r"\s+", " ", callee)
    call = f"[&](auto... opforge_arguments) {{ {callee}(opforge_arguments...); }}"
    separator = ", " if arguments.strip() else ""
    made = f'::opforge::cuda::Launcher("{_quoted(name)}", {configuration})({call}{separator}{arguments})'
    return _Edit(begin, closing + 1, made)


def _callee(text: str, end: int) -> int:
    """Where the name of a kernel begins, with its namespaces and template arguments, that ends before ``end``."""
    at = len(text[:end].rstrip())
    if text[at - 1 : at] == ">":
        depth = 0
        while at > 0:
            at -= 1
            depth += {">": 1, "<": -1}.get(text[at], 0)
            if depth == 0:
                break
        at = len(text[:at].rstrip())
    while at > 0 and (text[at - 1].isalnum() or text[at - 1] in "_:"):
        at -= 1
    return at


def _variables(text: str, found: re.Match[str], path: str) -> _Edit:
    """``__shared__ T a[n], b;``, and the dynamic one, ``extern __shared__ T a[];``."""
    end = _semicolon(text, found.end())
    statement = text[found.start() : end]
    dynamic = _DYNAMIC.match(statement)
    if dynamic is not None:
        kind, name = dynamic["type"], dynamic["name"]
        return _Edit(found.start(), end, f"{kind}* const {name} = ::opforge::cuda::dynamic_shared<{kind}>()")
    static = _STATIC.match(statement)
    declarators = _split(static["rest"]) if static is not None and end >= 0 else []
    first = _DECLARATOR.match(declarators[0]) if declarators else None
    if static is None or first is None or not first["before"].strip():
        raise _unsupported(text, found.start(), path, "this declaration of a shared variable")
    kind = re.sub(r"\bvolatile\b", "", first["before"]).strip()
    aligned = f"alignas({static['alignment']}) " if static["alignment"] else ""
    made = []
    for declarator in [declarators[0][len(first["before"]) :], *declarators[1:]]:
        one = _DECLARATOR.match(declarator)
        if one is None or one["before"].strip():
            raise _unsupported(text, found.start(), path, "this declaration of a shared variable")
        name = one["name"]
        holder = f"struct {name}_shared {{ {aligned}{kind} value {one['sizes'].strip()}; }}"
        key = f"static char {name}_key"
        made.append(
            f'{holder}; {key}; auto& {name} = ::opforge::cuda::shared<{name}_shared>(&{name}_key, "{name}").value'
        )
    return _Edit(found.start(), end, "; ".join(made))


def _semicolon(text: str, at: int) -> int:
    depth = 0
    for k in range(at, len(text)):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text[k], 0)
        if text[k] == ";" and depth == 0:
            return k
    return -1


def _closing(text: str, at: int) -> int:
    depth = 0
    for found in re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[()]').finditer(text, at):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0:
            return found.start()
    return -1


def _split(text: str) -> list[str]:
    """Split declarators at commas that are in no brackets."""
    parts, depth, begin = [], 0, 0
    for k, character in enumerate(text):
        depth += {"(": 1, "[": 1, "{": 1, "<": 1, ")": -1, "]": -1, "}": -1, ">": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(text[begin:k])
            begin = k + 1
    return [*parts, text[begin:]]


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _unsupported(text: str, at: int, path: str, what: str) -> UnsupportedError:
    line = text.count("\n", 0, at) + 1
    return UnsupportedError(
        f"the CUDA emulator does not model {what}",
        where=f"{path}:{line}",
        expected="launches k<<<...>>>(...), __shared__ variables and CUDA C++ without PTX, wmma or cooperative groups",
        got=text.splitlines()[line - 1].strip(),
        hint="guard the lines with #ifndef OPFORGE_CUDA_EMULATED and give the emulator a plain way",
    )
