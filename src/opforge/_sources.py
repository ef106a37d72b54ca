"""Python files of users, imported as they are."""

from __future__ import annotations

from importlib.machinery import SOURCE_SUFFIXES, ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType

__all__ = ["spec_of_file"]


class _AsItIs(SourceFileLoader):
    """Compiles the source that is there, and keeps nothing compiled.

    Python takes what it kept for a file of the same size and second: whoever writes a declaration, checks it and
    writes it anew would check the first one twice.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def spec_of_file(name: str, path: Path, search: list[str] | None = None) -> ModuleSpec | None:
    """Return how a file is imported under a name; None where it is no Python file.

    Args:
        name: of the module.
        path: of the file.
        search: folders of a package's modules.
    """
    path = path.absolute()  # which its code objects keep: the working directory may change
    loader = _AsItIs(name, str(path)) if path.suffix in SOURCE_SUFFIXES else None
    return spec_from_file_location(name, path, loader=loader, submodule_search_locations=search)
