"""What OpenVINO says of a failure, as an error of ours: the adapter's own words are found again in its."""

from __future__ import annotations

import re
from typing import Final

from opforge.build.native import STATUS_ERRORS
from opforge.errors import InternalError, MissingOperatorError, OpforgeError, UnsupportedError

__all__ = ["load_error", "our_words", "run_error"]

_OURS: Final = re.compile(r"opforge\((\d+)\): (.*?)\n\(end of opforge's words\)", re.DOTALL)
_UNKNOWN: Final = ("does not support the following ONNX operations", "Cannot create", "No conversion rule found")


def our_words(problem: Exception) -> tuple[int, str] | None:
    """Return status and text of what an operator of ours said, or None."""
    match = _OURS.search(str(problem))
    return None if match is None else (int(match[1]), match[2])


def load_error(problem: Exception, where: str) -> OpforgeError:
    """Return the error of a model that OpenVINO does not take."""
    ours = our_words(problem)
    if ours is not None:
        return STATUS_ERRORS.get(ours[0], InternalError)("a node does not fit its operator", where=where, got=ours[1])
    text = str(problem).strip()
    if any(words in text for words in _UNKNOWN):
        return MissingOperatorError(
            "OpenVINO does not know an operator of this model",
            where=where,
            got=text,
            hint="formula operators bring a body when exported; the engine `reference` needs none",
        )
    return UnsupportedError("OpenVINO cannot load this model", where=where, got=text)


def run_error(problem: Exception, where: str) -> OpforgeError:
    """Return the error of inputs that OpenVINO or an operator does not take."""
    ours = our_words(problem)
    status, text = ours if ours is not None else (1, str(problem).strip())
    return STATUS_ERRORS.get(status, InternalError)("OpenVINO refused these inputs", where=where, got=text)
