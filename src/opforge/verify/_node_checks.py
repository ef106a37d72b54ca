"""The parts of a check of a stranger's custom operator in ONNX Runtime."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from opforge.errors import OpforgeError, UnsupportedError
from opforge.schema import Operator
from opforge.verify import _contract_checks, _operator_checks, _stability_checks
from opforge.verify._rows import Array, Row
from opforge.verify.hosts import Host
from opforge.verify.levels import Level
from opforge.verify.support import case_model

__all__ = ["node_parts"]

_ENTRY = "RegisterCustomOps"


def node_parts(
    operator: Operator, library: Path, level: Level, seed: int
) -> Iterator[tuple[str, Callable[[], Iterator[Row]]]]:
    """Give the parts in order; a library that cannot be used leaves nothing else to check."""
    problem = _problem(library)
    yield "library", lambda: iter([Row("library", "", "onnxruntime", "", not problem, problem)])
    if problem:
        return
    host = Host("onnxruntime", _Compute(library), _no_gradients)
    yield "values", partial(_operator_checks.values, operator, host, 0, seed)
    yield "boundary", partial(_operator_checks.boundary, operator, host, seed)
    yield "determinism", partial(_stability_checks.in_host, operator, host, seed, level.rounds)
    yield "leaks", partial(_contract_checks.leaks, operator, host, seed, max(200, level.forwards))


def _problem(library: Path) -> str:
    """Say why ONNX Runtime cannot use the library; nothing where it can."""
    import onnxruntime

    if not library.is_file():
        return f"there is no such file: {library}"
    try:
        loaded = ctypes.CDLL(str(library.resolve()))
    except OSError as error:
        return f"the library does not load: {error}; build it for this machine, with everything that it needs beside it"
    if not hasattr(loaded, _ENTRY):
        return f'{library.name} exports no {_ENTRY}: declare it extern "C" and let the linker keep it visible'
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        options.register_custom_ops_library(str(library.resolve()))
    except Exception as error:  # onnxruntime has a class of exception per status
        return (
            f"ONNX Runtime {onnxruntime.__version__} refuses the library: {error}; a library that asks GetApi for a "
            "newer version than this needs a newer ONNX Runtime, or has to ask for an older one"
        )
    return ""


class _Compute:
    """Runs models of one node; a session is kept for the last model, so that its state shows over several calls."""

    def __init__(self, library: Path) -> None:
        self._library = str(library.resolve())
        self._sessions: dict[bytes, Any] = {}

    def __call__(
        self, operator: Operator, inputs: Sequence[Array | None], attributes: Mapping[str, Any], mode: str = "eager"
    ) -> list[Array]:
        model, feeds, dtypes = case_model(operator, inputs, attributes)
        content = model.SerializeToString(deterministic=True)
        if content not in self._sessions:
            self._sessions[content] = self._session(operator, content)
        try:
            results = self._sessions[content].run([f"z{k}" for k in range(len(dtypes))], feeds)
        except Exception as error:  # as above
            raise UnsupportedError("the run fails", where=operator.qualified_name, got=str(error)) from error
        return [value.astype(dtype.numpy) for value, dtype in zip(results, dtypes, strict=True)]

    def _session(self, operator: Operator, content: bytes) -> Any:  # noqa: ANN401 - an InferenceSession
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.register_custom_ops_library(self._library)
        try:
            return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # as above
            raise OpforgeError(
                "ONNX Runtime does not take the node",
                where=operator.qualified_name,
                got=str(error),
                hint="compare domain, name, number of inputs, attributes and dtypes with what the library registers",
            ) from error


def _no_gradients(
    operator: Operator, inputs: Sequence[Array | None], grads: Sequence[Array], attributes: Mapping[str, Any]
) -> list[Array | None]:
    raise UnsupportedError("ONNX Runtime computes no gradients", where=operator.qualified_name)
