"""Toolchains that opforge does not run: what each would find no kernel for, before a model is converted."""

from opforge.targets._report import NodeSupport, Part, TargetReport, target_report
from opforge.targets._rows import TOOLCHAINS, Toolchain

__all__ = ["TOOLCHAINS", "NodeSupport", "Part", "TargetReport", "Toolchain", "target_report"]
