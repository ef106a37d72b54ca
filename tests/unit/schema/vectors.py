"""The golden vectors, which hold the Python and the C++ form of the schema together."""

import json
from pathlib import Path

PATH = Path(__file__).parents[2] / "data" / "signature_vectors.json"
VECTORS = json.loads(PATH.read_text(encoding="utf-8"))


def of_kind(kind):
    return [vector for vector in VECTORS if vector["kind"] == kind]


def name_of(vector):
    return vector["name"].replace(" ", "-")
