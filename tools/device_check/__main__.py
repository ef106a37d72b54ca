"""``make device-check``: finds the packages that were carried along, then runs the check (`check.main`)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.device_check.packages import carried, default_folder, missing, rehearses


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 1, with the command that helps, where a package is neither here nor carried for this Python."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--prebuilt", type=Path)
    parser.add_argument("--rehearse", action="store_true", default=rehearses())
    given, _ = parser.parse_known_args(arguments)
    prebuilt = given.prebuilt or default_folder(given.rehearse)
    folders = carried(prebuilt.absolute())
    sys.path += folders
    if lacking := missing():
        names = ", ".join(lacking)
        packages = " ".join(name.replace("_", "-") for name in lacking)
        print(f"FAILED: {sys.executable} lacks {names}, and none for it lies in {prebuilt}: pip install {packages}")
        return 1
    from tools.device_check.check import main as check  # which imports them

    return check(arguments, packages=folders)


if __name__ == "__main__":
    sys.exit(main())
