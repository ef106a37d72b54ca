"""The build cache: content-addressed, safe under concurrent and killed builds.

A build is named by a primary key (text of all units, flags, compiler identity, ABI). The files that the
compiler read on the way, from its depfiles, are recorded with their content hashes beside the result; a hit
needs every one of them unchanged, so an edited header rebuilds whatever its time stamp says. Results appear by
rename, the record last. The lock is an flock: the kernel drops it when its holder dies.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from opforge.errors import BuildError

__all__ = ["Cache", "Made", "cache_dir", "compiler_words", "file_hash", "open_cache"]

_LAYOUT = "v1"
_ENDINGS = (".so", ".o")
_VARIANTS_KEPT = 4
_MESSAGE_AFTER_SECONDS = 5.0
_WAIT_SECONDS = 900.0


def cache_dir() -> Path:
    """Return ``OPFORGE_CACHE``, else ``$XDG_CACHE_HOME/opforge``, else ``~/.cache/opforge``."""
    chosen = os.environ.get("OPFORGE_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()  # the compiler works in another folder
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base).absolute() / "opforge"
    try:
        return Path.home() / ".cache" / "opforge"
    except RuntimeError:  # no home folder at all, as in some containers
        return Path(tempfile.gettempdir()) / f"opforge-{os.getuid()}"


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Made:
    """What a build made.

    Attributes:
        library: the shared object, or an object for several of them, in the folder that the build was given.
        files: all that it depends on.
        content: hash of what it computes.
        sources: those of the files that the content hash covers.
        words: what the compilers of the kernels said.
    """

    library: Path
    files: Iterable[Path]
    content: str
    sources: Iterable[Path] = ()
    words: str = ""


@dataclass(frozen=True)
class Cache:
    """A cache folder; `fallback` is a private one for this process where `root` cannot be written."""

    root: Path
    fallback: Path | None = None

    def lookup(self, name: str, key: str) -> Path | None:
        """Return the shared object of a build whose recorded files are all unchanged."""
        for root in (self.root, self.fallback):
            if root is None:
                continue
            try:
                records = sorted((root / _LAYOUT / f"{name}-{key}").glob("*.json"))
            except OSError:
                continue
            for record in records:
                if _unchanged(record):
                    return _product(record)
        return None

    def built(self, name: str, key: str, make: Callable[[Path], Made]) -> Path:
        """Return the shared object of a build, made now in a folder that `make` is given if it is not there."""
        found = self.lookup(name, key)
        if found:
            return found
        with self.lock(name, key):
            found = self.lookup(name, key)  # another process may have finished it
            if found:
                return found
            with self.workspace(name, key) as folder:
                started = time.time_ns()
                return self.publish(name, key, make(folder), started)

    @contextlib.contextmanager
    def lock(self, name: str, key: str) -> Iterator[None]:
        """Hold the build's lock. Look up again inside: another process may have finished it."""
        folder = self._folder(name, key)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _acquire(handle, name)
            yield
        finally:
            os.close(handle)  # releases the lock

    @contextlib.contextmanager
    def workspace(self, name: str, key: str) -> Iterator[Path]:
        """Give a folder to build in. Call under the lock: leftovers of killed builds are removed here."""
        folder = self._folder(name, key)
        for leftover in folder.glob("tmp-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix="tmp-", dir=folder))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def publish(self, name: str, key: str, made: Made, started: int) -> Path:
        """Move the finished shared object into place and record the files that it depends on.

        `started` is the time (ns) before the compiler ran: a file edited since then may not be what it read, so
        such a result serves this process only and is not recorded. The change time counts, which no program
        sets: a header with a modification time in the future is recorded like any other.
        """
        folder = self._folder(name, key)
        built, files = made.library, list(made.files)
        if any(path.stat().st_ctime_ns >= started for path in files):
            unrecorded = folder / f"{name}-{uuid.uuid4().hex[:16]}{built.suffix}"
            built.replace(unrecorded)
            return unrecorded
        hashes = {str(path): file_hash(path) for path in files}
        variant = hashlib.sha256(json.dumps(hashes).encode()).hexdigest()[:16]
        target = folder / f"{name}-{variant}{built.suffix}"
        record = built.with_suffix(".json")
        facts: dict[str, object] = {
            "content_hash": made.content,
            "files": hashes,
            "sources": [str(path) for path in made.sources],
        }
        if made.words:
            facts["words"] = made.words
        record.write_text(json.dumps(facts, indent=1), encoding="utf-8")
        built.replace(target)
        record.replace(target.with_suffix(".json"))
        for old in sorted(folder.glob("*.json"), key=lambda p: p.stat().st_mtime)[:-_VARIANTS_KEPT]:
            old.unlink(missing_ok=True)
            for ending in _ENDINGS:
                old.with_suffix(ending).unlink(missing_ok=True)
        return target

    def _folder(self, name: str, key: str) -> Path:
        folder = (self.fallback or self.root) / _LAYOUT / f"{name}-{key}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def compiler_words(library: Path) -> str:
    """Return what the compilers said when a library of the cache, or one copied from it, was made; "" if unknown."""
    for record, key in (
        (library.with_suffix(".json"), "words"),
        (library.with_suffix(".manifest.json"), "compiler_words"),
    ):
        try:
            words = json.loads(record.read_text(encoding="utf-8"))[key]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
        if isinstance(words, str):
            return words
    return ""


_caches: dict[Path, Cache] = {}


def open_cache() -> Cache:
    """Return the cache; where its folder cannot be written, warn and add a private temporary one."""
    root = cache_dir()
    if root not in _caches:
        foreign = not os.environ.get("OPFORGE_CACHE") and _belongs_to_another(root)
        reason = "it belongs to another user" if foreign else _unwritable(root)
        fallback = None
        if reason:
            fallback = Path(tempfile.mkdtemp(prefix="opforge-"))
            warnings.warn(
                f"the build cache {root} cannot be written ({reason}): this process builds into {fallback}, "
                "and the next one builds again; set OPFORGE_CACHE to a folder that can be written",
                RuntimeWarning,
                stacklevel=2,
            )
        # Code is never loaded from a default folder that somebody else made.
        _caches[root] = Cache(fallback) if foreign and fallback else Cache(root, fallback)
    return _caches[root]


def _belongs_to_another(root: Path) -> bool:
    try:
        return root.stat().st_uid not in (os.geteuid(), 0)
    except OSError:
        return False


def _unwritable(root: Path) -> str | None:
    try:
        (root / _LAYOUT).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root / _LAYOUT):
            return None
    except OSError as error:
        return error.strerror or str(error)


def _product(record: Path) -> Path | None:
    """Return what a record tells of, if it is there."""
    return next((path for ending in _ENDINGS if (path := record.with_suffix(ending)).is_file()), None)


def _unchanged(record: Path) -> bool:
    try:
        files = json.loads(record.read_text(encoding="utf-8"))["files"]
        return _product(record) is not None and all(file_hash(Path(p)) == known for p, known in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # a record that is not ours
        return False


def _acquire(handle: int, name: str) -> None:
    start = time.monotonic()
    told = False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP):
                return  # a file system without locks: the rename still keeps results whole
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                raise
        else:
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            return
        waited = time.monotonic() - start
        holder = os.pread(handle, 20, 0).decode("ascii", "replace") or "unknown"
        if waited > _WAIT_SECONDS:
            raise BuildError(
                f"waited {waited:.0f} s for another build",
                where=name,
                got=f"process {holder} still holds the lock",
                hint="end that process, or set OPFORGE_CACHE to another folder",
            )
        if waited > _MESSAGE_AFTER_SECONDS and not told:
            print(f"opforge: process {holder} is building {name}, waiting for it", file=sys.stderr)
            told = True
        time.sleep(0.02 if waited < 1 else 0.1)
