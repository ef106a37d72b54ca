"""The execution provider: registered once per process, added to a session's options, asked what it took."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from opforge.engines.onnxruntime._adapter import adapter_path
from opforge.errors import UnsupportedError

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["NAME", "RECORD", "SINCE", "Placed", "add_provider", "placement"]

NAME: Final = "OpforgeExecutionProvider"
SINCE: Final = (1, 23)
"""First version of ONNX Runtime that takes an execution provider from a library."""

RECORD: Final = "session.record_ep_graph_assignment_info"


@dataclass(frozen=True)
class Placed:
    """Nodes that one execution provider runs together.

    Attributes:
        provider: its name.
        nodes: ``domain::Name`` (or a plain name) of each node, in ONNX Runtime's order.
    """

    provider: str
    nodes: tuple[str, ...]


@functools.cache
def _devices() -> tuple[Any, ...]:
    """Register the provider with this process's ONNX Runtime and return its devices."""
    import onnxruntime

    version = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
    if version < SINCE:
        raise UnsupportedError(
            "this ONNX Runtime takes no execution provider from a library",
            where="onnxruntime",
            expected=".".join(map(str, SINCE)) + " or newer",
            got=onnxruntime.__version__,
            hint="leave provider= out: the operators run as custom operators of the CPU's provider",
        )
    if not any(device.ep_name == NAME for device in onnxruntime.get_ep_devices()):
        onnxruntime.register_execution_provider_library(NAME, str(adapter_path()))
    return tuple(device for device in onnxruntime.get_ep_devices() if device.ep_name == NAME)


def add_provider(options: onnxruntime.SessionOptions, programs: Path | None = None) -> None:
    """Add the provider to a session's options, and have the session record who takes what.

    Args:
        options: of the session.
        programs: folder of compiled parts, which must stay until the session is there.

    Raises:
        UnsupportedError: ONNX Runtime is older than 1.23.
    """
    devices = list(_devices())
    options.add_provider_for_devices(devices, {})
    options.add_session_config_entry(RECORD, "1")
    if programs is not None:
        options.add_session_config_entry("opforge.programs", str(programs))
        options.add_session_config_entry("opforge.threads", str(options.intra_op_num_threads))


def placement(session: onnxruntime.InferenceSession) -> list[Placed]:
    """Return which provider runs which nodes of a session that ``session(provider=True)`` made.

    Nodes of one entry run as one: a compiled part has several.

    Raises:
        UnsupportedError: ONNX Runtime is older than 1.24, or the session does not record it.
    """
    try:
        found = session.get_provider_graph_assignment_info()
    except Exception as problem:
        raise UnsupportedError(
            "ONNX Runtime does not say who runs which node",
            where="placement",
            expected="a session made with provider=True by ONNX Runtime 1.24 or newer",
            got=str(problem),
        ) from problem
    return [Placed(part.ep_name, tuple(_label(node) for node in part.get_nodes())) for part in found]


def _label(node: Any) -> str:  # noqa: ANN401 - onnxruntime has no types for it
    return f"{node.domain}::{node.op_type}" if node.domain else str(node.op_type)
