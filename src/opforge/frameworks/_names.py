"""Names of operators in frameworks that other parts must know without the framework."""

from __future__ import annotations

import re

__all__ = ["tensorflow_name"]


def tensorflow_name(domain: str, name: str, version: int) -> str:
    """Return the name of the operation: ``com.example::CustomGELU:1`` is ``ComExampleCustomGELUV1``."""
    words = re.split(r"[^0-9A-Za-z]+", domain)
    return "".join(word[:1].upper() + word[1:] for word in words) + f"{name[:1].upper()}{name[1:]}V{version}"
