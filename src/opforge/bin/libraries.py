"""Where a session finds the kernel libraries that a .bin names, beside those that it is given."""

from __future__ import annotations

from importlib import metadata as packages
from importlib.util import find_spec
from pathlib import Path

__all__ = ["installed_folders", "libraries_of"]


def installed_folders() -> list[str]:
    """Return the folders of installed operator packages (group ``opforge.operators``), without importing them."""
    folders: list[str] = []
    for entry in packages.entry_points(group="opforge.operators"):
        top, *rest = entry.value.partition(":")[0].split(".")  # finding a dotted module would import its parent
        try:
            spec = find_spec(top)
        except (ImportError, ValueError):
            continue
        for location in (spec.submodule_search_locations or ()) if spec is not None else ():
            package = Path(location, *rest)
            folders += [str(folder) for folder in (package, package / "_lib") if folder.is_dir()]
    return folders


def libraries_of(path: Path, *, search: bool = False) -> list[Path]:
    """Give the libraries of kernel operators that the file needs and this process knows, compiled where need be.

    Args:
        path: a .bin.
        search: import installed operator packages where an operator is not known yet.
    """
    from opforge.bin.format import read, read_table
    from opforge.bin.layout import Kind
    from opforge.build import library_for
    from opforge.schema import discover, registry

    if not any(section.kind == Kind.OPERATORS for section in read_table(path).sections):
        return []
    found: list[Path] = []
    for item in read(path).program.required:
        operator = registry.find(item.domain, item.name, item.version)
        if operator is None and search:
            discover()
            operator = registry.find(item.domain, item.name, item.version)
        if operator is None or operator.is_formula or operator.schema_hash != item.schema_hash:
            continue  # the session says what is missing, and where it looked
        library = library_for([operator]).path
        if library is not None and library not in found:
            found.append(library)
    return found
