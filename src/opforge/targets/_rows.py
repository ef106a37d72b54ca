"""Toolchains of vendors: which operators of ONNX each says that it has kernels for, as rows with their source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["TOOLCHAINS", "Toolchain"]


@dataclass(frozen=True)
class Toolchain:
    """What a vendor publishes of a toolchain.

    Attributes:
        name: as ``--target`` takes it.
        title: for people, with the version that the list is of.
        operators: of the default domain.
        opsets: oldest and newest version of the default domain that it reads.
        source: where the list stands.
        device: what the operators run on.
        own: how a kernel of one's own gets there.
        note: what the list does not tell.
    """

    name: str
    title: str
    operators: frozenset[str]
    opsets: tuple[int, int]
    source: str
    device: str
    own: str
    note: str


_CANN = """
Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization BitShift BitwiseAnd BitwiseNot
BitwiseOr BitwiseXor Cast Ceil Celu Clip Compress Concat Constant ConstantOfShape Conv ConvTranspose Cos Cosh CumSum
DepthToSpace Det Div Dropout Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements GatherND
Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample HardSigmoid HardSwish Hardmax
Identity If InstanceNormalization IsInf IsNaN LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax
LpNormalization LpPool MatMul Max MaxPool MaxRoiPool MaxUnpool Mean MeanVarianceNormalization Min Mod Mul Multinomial
Neg NonMaxSuppression NonZero Not OneHot Or PRelu Pad Pow RandomNormal RandomNormalLike RandomUniform RandomUniformLike
Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
ReduceSumSquare Relu Reshape Resize ReverseSequence RoiAlign Round Scatter ScatterElements ScatterND Selu Shape Shrink
Sigmoid Sign Sin Sinh Size Slice Softmax SoftmaxCrossEntropyLoss Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub
Sum Tan Tanh TfIdfVectorizer ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Where Xor
"""
_VITIS_AI = """
Add ArgMax AveragePool Clip Concat Conv Gather Gemm GlobalAveragePool LeakyRelu MatMul MaxPool Mul Pad Relu Reshape
Resize Sigmoid Softmax Split Squeeze Transpose Unsqueeze
"""

TOOLCHAINS: Mapping[str, Toolchain] = {
    row.name: row
    for row in (
        Toolchain(
            "cann",
            "Huawei CANN 8.0.0 (ATC)",
            frozenset(_CANN.split()),
            (9, 18),
            "https://www.hiascend.com/doc_center/source/zh/canncommercial/800/apiref/aolapi/operatorlist_00176.html; "
            "opsets: https://www.hiascend.com/document/detail/zh/canncommercial/700/inferapplicationdev/atctool/"
            "atlasatc_16_0201.html",
            "Ascend NPU",
            "write it in Ascend C or TBE with an ONNX plugin that registers domain and op_type",
            "which dtypes, ranks and attributes a kernel takes stands on the operator's page there",
        ),
        Toolchain(
            "vitis-ai",
            "AMD Vitis AI 3.5 (vai_q_onnx)",
            frozenset(_VITIS_AI.split()),
            (1, 18),
            "https://github.com/Xilinx/Vitis-AI/blob/b7953a2a9f60e23efdfced5c186328dd1449665c/src/vai_quantizer/"
            "vai_q_onnx/vai_q_onnx/registry.py; opset: https://docs.amd.com/r/en-US/ug1354-xilinx-ai-sdk/Features",
            "DPU",
            "register it as an operator of XIR with an implementation for the CPU",
            "these are quantised for the DPU; its compiler leaves those on the CPU whose kernel, stride or channels "
            "exceed the DPU's configuration (UG1414, Currently Supported Operators)",
        ),
    )
}
"""Name to row."""
