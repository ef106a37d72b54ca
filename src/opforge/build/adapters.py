"""Adapters in C++ that are compiled on the user's machine, once per version of what they are compiled against.

Their sources travel with the package, the results lie in the build cache. A build that failed is not tried again by
itself: its words are kept.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from opforge import _paths
from opforge.build.cache import Made, open_cache
from opforge.build.compile import compile_units, link
from opforge.build.toolchain import find_compiler
from opforge.codegen.units import Unit
from opforge.errors import BuildError, UnsupportedError

__all__ = ["Recipe", "adapter_sources", "joined_source", "source_file"]

_INCLUDE: Final = re.compile(r'^#include "([^"]+)"$')


def adapter_sources() -> Path:
    """Return the folder of the adapters' sources, which holds ``common`` and one folder per host."""
    package = Path(_paths.__file__).resolve().parent
    installed = package / "adapters"
    return installed if installed.is_dir() else package.parent.parent / "adapters"


def source_file(name: str) -> Path:
    """Return a source by its name below the folder of adapters, or of our headers.

    Raises:
        UnsupportedError: this installation lacks it.
    """
    for root in (adapter_sources(), _paths.include_dir()):
        if (root / name).is_file():
            return root / name
    raise UnsupportedError("a source file of opforge is missing", where=name, hint="install opforge again")


def joined_source(name: str, beside: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Return the lines of a source with those of its includes in their place, each file once.

    Args:
        name: of the source.
        beside: includes that stay, and what they are called then.
    """
    return _joined(name, beside, set())


def _joined(name: str, beside: Mapping[str, str], seen: set[Path]) -> list[str]:
    path = source_file(name)
    if path in seen:
        return []
    seen.add(path)
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        include = _INCLUDE.match(line)
        if include is not None and include.group(1) in beside:
            lines.append(f'#include "{beside[include.group(1)]}"')
        elif include is not None:
            lines += _joined(include.group(1), beside, seen)
        elif line != "#pragma once":
            lines.append(line)
    return lines


@dataclass(frozen=True)
class Recipe:
    """How one adapter is made here.

    Attributes:
        name: of the file and of its place in the cache.
        where: for messages: the adapter and what it is compiled against, with its version.
        source: the one .cpp, below the folder of adapters.
        flags: of the compiler, beside the folders of our own headers.
        link_flags: of the linker.
        identity: what names the thing it is compiled against: versions, ABI switches.
        folders: of ours, below the folder of adapters, in which its includes are looked for too.
    """

    name: str
    where: str
    source: str
    flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    identity: tuple[str, ...]
    folders: tuple[str, ...] = ()

    def built(self) -> Path | None:
        """Return the adapter that fits what is installed, or None where it has not been built."""
        try:
            return open_cache().lookup(self.name, self._key())
        except OSError:
            return None

    def failure(self) -> str | None:
        """Return what an earlier build against the same failed with, or None."""
        try:
            return self._failure_file().read_text(encoding="utf-8")
        except OSError:
            return None

    def build(self, *, force: bool = False) -> Path:
        """Build the adapter unless it is there already, and return its path.

        Args:
            force: build even where an earlier attempt failed.

        Raises:
            ToolchainError: there is no C++ compiler.
            BuildError: the compiler refuses it; its words are in the message.
        """
        key = self._key()

        def make(folder: Path) -> Made:
            compiler = find_compiler()
            if not force and (text := self.failure()) is not None:
                hint = f"build with force=True, or delete the file that keeps the failure: {self._failure_file()}"
                raise BuildError(f"an earlier build of {self.where} failed", where=self.name, got=text, hint=hint)
            unit = Unit("adapter.cpp", f'#include "{self.source}"\n')
            flags = (*self.flags, *(f"-I{root}" for root in self._roots()))
            library = folder / f"{self.name}.so"
            try:
                objects, _, _ = compile_units(compiler, [unit], flags, folder, self.where)
                link(compiler, objects, library, self.link_flags, self.where)
            except BuildError as error:
                self._failure_file().write_text(str(error), encoding="utf-8")
                raise
            self._failure_file().unlink(missing_ok=True)
            return Made(library, self._files(), key)

        return open_cache().built(self.name, key, make)

    def _roots(self) -> tuple[Path, ...]:
        adapters = adapter_sources()
        return (*(adapters / folder for folder in self.folders), adapters, _paths.include_dir())

    def _files(self) -> list[Path]:
        """Give the adapter's own sources and the headers of ours that they include."""
        roots = self._roots()
        found: dict[Path, None] = {}
        waiting = [adapter_sources() / self.source]
        while waiting:
            path = waiting.pop()
            if path in found:
                continue
            found[path] = None
            for name in re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
                waiting.append(next(root / name for root in roots if (root / name).is_file()))
        return sorted(found)

    def _key(self) -> str:
        """Name the build: what it is against, the platform, the sources. Not the compiler: a lookup asks none."""
        digest = hashlib.sha256()
        for part in (*self.identity, platform.machine(), *self.flags, *self.link_flags):
            digest.update(part.encode() + b"\0")
        for path in self._files():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:32]

    def _failure_file(self) -> Path:
        cache = open_cache()
        folder = (cache.fallback or cache.root) / "failed"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self.name}-{self._key()}.txt"
