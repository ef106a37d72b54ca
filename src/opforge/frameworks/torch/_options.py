"""Switches of the PyTorch host."""

from __future__ import annotations

import os
from typing import Final, Literal

from opforge.errors import ArgumentError

__all__ = ["Options", "options"]

Decompose = Literal["auto", True, False]
_WORDS: Final[dict[str, Decompose]] = {
    "": "auto", "auto": "auto", "1": True, "true": True, "on": True, "0": False, "false": False, "off": False,
}  # fmt: skip


class Options:
    """What a user may set; ``opforge.torch.options`` is the one object of it."""

    def __init__(self) -> None:
        """Read the environment."""
        word = os.environ.get("OPFORGE_TORCH_DECOMPOSE", "").strip().lower()
        if word not in _WORDS:
            raise ArgumentError(
                "unknown value", where="OPFORGE_TORCH_DECOMPOSE", expected="auto | on | off", got=repr(word)
            )
        self._decompose: Decompose = _WORDS[word]

    @property
    def decompose(self) -> Decompose:
        """Whether formula operators are decomposed under inductor, so that they fuse with their neighbours.

        ``"auto"`` follows the measurement that is written in docs/design/torch.md; True and False force it. It counts
        from the next compilation on. ``OPFORGE_TORCH_DECOMPOSE`` sets its first value.
        """
        return self._decompose

    @decompose.setter
    def decompose(self, value: Decompose) -> None:
        if value not in ("auto", True, False):
            raise ArgumentError(
                "unknown value",
                where="opforge.torch.options.decompose",
                expected='"auto", True or False',
                got=repr(value),
            )
        self._decompose = value
        from opforge.frameworks.torch import _decompose

        _decompose.refresh()


options: Final = Options()
