"""Run by tests/unit/torch/test_routes.py, once per route; collected only where the route is named."""

import os

collect_ignore_glob = [] if os.environ.get("OPFORGE_TORCH_ROUTE") else ["test_*.py"]
