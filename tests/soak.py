"""How much longer `make soak` (OPFORGE_SOAK=1) runs what `make test` runs briefly."""

import os

FACTOR = 50 if os.environ.get("OPFORGE_SOAK") == "1" else 1
