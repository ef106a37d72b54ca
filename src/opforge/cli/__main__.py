"""``python -m opforge.cli``."""

import sys

from opforge.cli import main

if __name__ == "__main__":
    sys.exit(main())
