"""Let the virtual environment import opforge from the source tree and offer the `opforge` command.

The native parts lie in src/opforge/_lib (built by CMake), so a path file and the package's metadata are all
that an editable install would add.
"""

from __future__ import annotations

import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Write the path file, the entry points and the command."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    site = Path(sysconfig.get_paths()["purelib"])
    (site / "opforge-source.pth").write_text(f"{ROOT / 'src'}\n")
    info = site / f"opforge-{project['version']}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: opforge\nVersion: {project['version']}\n")
    (info / "INSTALLER").write_text("make\n")
    (info / "RECORD").write_text("")
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    text = "".join(f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in rows.items()) for group, rows in groups.items())
    (info / "entry_points.txt").write_text(text)
    for name, target in project["scripts"].items():
        module, function = target.split(":")
        command = Path(sysconfig.get_paths()["scripts"]) / name
        command.write_text(
            f"#!{sys.executable}\nimport sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"
        )
        command.chmod(0o755)


if __name__ == "__main__":
    main()
