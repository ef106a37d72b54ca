"""Print the requirements of extras (and of the build) from pyproject.toml, one a line, for pip install -r."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def main(names: list[str]) -> None:
    """Resolve references between our own extras and print the rest."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    found: dict[str, None] = dict.fromkeys(project["project"]["dependencies"])
    pending = list(names)
    seen: set[str] = set()
    while pending:
        name = pending.pop(0)
        if name in seen:
            continue
        seen.add(name)
        for item in project["build-system"]["requires"] if name == "build-system" else extras[name]:
            own = re.fullmatch(r"opforge\[(.*)\]", item)
            if own:
                pending.extend(part.strip() for part in own.group(1).split(","))
            else:
                found[item] = None
    print("\n".join(found))


if __name__ == "__main__":
    main(sys.argv[1:])
