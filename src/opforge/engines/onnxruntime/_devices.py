"""Sessions on a GPU: the provider that runs our kernels there, and that no node of ours goes to the CPU by itself.

ONNX Runtime is lenient: it starts a session without a provider that it lacks, and gives a node that a provider has no
kernel for to the CPU's, with copies of its tensors. For nodes of ours both are errors here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from opforge.build.device import Device
from opforge.engines.onnxruntime._provider import placement
from opforge.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["RECORD_SINCE", "check_placement", "check_started", "chosen_providers", "device_of"]

CUDA: Final = "CUDAExecutionProvider"
CPU: Final = "CPUExecutionProvider"
_PROVIDERS: Final[dict[str, tuple[str, ...]]] = {"cpu": (CPU,), "cuda": (CUDA, CPU)}
_HINT: Final = "pip uninstall onnxruntime, then pip install onnxruntime-gpu; or leave the GPU out"

RECORD_SINCE: Final = (1, 24)
"""First version of ONNX Runtime that tells which provider runs which node."""


def _name(provider: Any) -> str:  # noqa: ANN401 - a name, or a name with options
    return str(provider if isinstance(provider, str) else provider[0])


def chosen_providers(device: str | None, providers: Sequence[Any] | None) -> list[Any]:
    """Return the providers of a session: those that are named, or those of a device ("cpu" where nothing is said).

    Raises:
        ArgumentError: both are named, or there is no such device.
    """
    if device is not None and providers is not None:
        raise ArgumentError("device= chooses the providers itself", where="session", got=f"{device=}, {providers=}")
    if device is not None and device not in _PROVIDERS:
        raise ArgumentError("no such device", where="session", expected=", ".join(_PROVIDERS), got=repr(device))
    return list(_PROVIDERS[device or "cpu"] if providers is None else providers)


def device_of(providers: Sequence[Any]) -> Device | None:
    """Return the device beside the CPU that kernels are needed for.

    Raises:
        UnsupportedError: the installed ONNX Runtime lacks the provider.
    """
    import onnxruntime

    if CUDA not in map(_name, providers):
        return None
    available = onnxruntime.get_available_providers()
    if CUDA not in available:
        raise UnsupportedError(
            "this ONNX Runtime was built without CUDA", where="session", expected=CUDA, got=available, hint=_HINT
        )
    return "cuda"


def check_started(session: onnxruntime.InferenceSession, where: str) -> None:
    """Refuse a session that ONNX Runtime has begun without the GPU.

    Raises:
        UnsupportedError: the provider for the GPU is not among the session's.
    """
    started = session.get_providers()
    if CUDA not in started:
        raise UnsupportedError(
            "ONNX Runtime could not start its CUDA provider, and went on without it",
            where=where,
            expected=CUDA,
            got=started,
            hint="its log says why: onnxruntime.set_default_logger_severity(1); most often CUDA's or cuDNN's libraries "
            "of the version that it was built with are missing",
        )


def check_placement(session: onnxruntime.InferenceSession, used: Collection[tuple[str, str]], where: str) -> None:
    """Refuse a session that would run nodes of ours on the CPU, with copies that nobody asked for.

    Args:
        session: one that records who runs what.
        used: domains and names of our operators.
        where: for messages.

    Raises:
        UnsupportedError: such nodes are there.
    """
    ours = {f"{domain}::{name}" for domain, name in used}
    left = {node for part in placement(session) if part.provider == CPU for node in part.nodes} & ours
    if left:
        raise UnsupportedError(
            "nodes would run on the CPU, with their tensors copied there and back",
            where=where,
            expected="kernels for CUDA of the dtypes of these nodes",
            got=sorted(left),
            hint='open the model with device="cpu", or cast its tensors to a dtype that the operator has on CUDA',
        )
