"""ONNX Runtime: what a user reaches as ``opforge.onnxruntime``.

``session(model)`` opens a session in which our kernels compute our nodes. ``library()`` is for those who make their
sessions themselves: ``options.register_custom_ops_library(opforge.onnxruntime.library())``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from opforge.engines.onnxruntime._adapter import adapter_path
from opforge.engines.onnxruntime._operators import register_library
from opforge.engines.onnxruntime._provider import Placed, placement
from opforge.engines.onnxruntime._session import library, open_session

if TYPE_CHECKING:
    import onnx
    import onnxruntime

__all__ = ["Placed", "adapter_path", "library", "placement", "register_library", "session"]


def session(
    model: str | Path | onnx.ModelProto,
    options: onnxruntime.SessionOptions | None = None,
    *,
    device: Literal["cpu", "cuda"] | None = None,
    providers: Sequence[Any] | None = None,
    bodies: bool = False,
    provider: bool = False,
    fuse: bool = False,
) -> onnxruntime.InferenceSession:
    """Create a session of ONNX Runtime that computes the model's nodes of ours by our kernels.

    Args:
        model: an ONNX model or its file.
        options: of the session; the kernels are registered with them.
        device: chooses the execution providers: "cpu" (default), or "cuda" with the CPU's behind it.
        providers: execution providers of ONNX Runtime in place of these; with CUDA's our kernels run on the GPU.
        bodies: whether a node whose function body the model carries runs as that body; its kernel runs otherwise,
            and the body is left out.
        provider: whether our execution provider claims the nodes, in place of custom operators of the CPU's; then
            ``placement`` tells what it took. ONNX Runtime 1.23 and newer.
        fuse: whether the provider also claims each matrix product or convolution with the elementwise nodes around
            it, a formula of ours among them: compiled to one node of opforge's runtime.

    Raises:
        MissingOperatorError: nodes have neither a registered operator nor a body.
        ArgumentError: nodes do not fit their operators: attributes, numbers of inputs, dtypes.
        UnsupportedError: ONNX Runtime refuses the model (its words are under ``got``), is too old, has no CUDA, or
            would run nodes of ours on the CPU although CUDA's provider was asked for.
        ToolchainError: kernels for the device are neither built ahead nor can be built here.
    """
    if not fuse:
        return open_session(model, options, device=device, providers=providers, bodies=bodies, provider=provider)
    from opforge.bin.parts import compile_parts
    from opforge.onnx._read import read_model

    whole = read_model(Path(model)) if isinstance(model, str | Path) else model
    with tempfile.TemporaryDirectory(prefix="opforge-") as folder:  # open files outlive their names
        compile_parts(whole, Path(folder))
        return open_session(
            model, options, device=device, providers=providers, bodies=bodies, provider=True, programs=Path(folder)
        )
