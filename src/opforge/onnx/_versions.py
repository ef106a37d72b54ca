"""The versions in which an exported model imports its operators' domains: one for all nodes of a domain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from opforge.errors import ExportError
from opforge.schema import registry

if TYPE_CHECKING:
    import onnx

    from opforge.schema import Operator

__all__ = ["settle_versions"]


def settle_versions(model: onnx.ModelProto, used: Iterable[Operator], where: str) -> None:
    """Import, in place, each domain in the version in which its nodes are the operators that were exported.

    A node has no version of its own: it is the newest operator of its name up to the version that the model imports.

    Args:
        model: as the framework's exporter wrote it.
        used: the operators that it wrote nodes for.
        where: what is exported.

    Raises:
        ExportError: there is no such version, since nodes were made with different versions of an operator, or one
            of them with an older version than the others want.
    """
    operators = {operator.key: operator for operator in used}
    versions: dict[str, int] = {}
    for operator in operators.values():
        versions[operator.domain] = max(operator.since_version, versions.get(operator.domain, 1))
    for key, operator in sorted(operators.items()):
        version = versions[operator.domain]
        meant = registry.find(operator.domain, operator.name, version)
        if meant is not None and meant.key != key:
            newer = sorted(
                k for k, o in operators.items() if o.domain == operator.domain and o.since_version == version
            )
            raise ExportError(
                "a model of ONNX imports a domain in one version, and these operators want several",
                where=where,
                expected=f"{operator.qualified_name} in version {operator.since_version}",
                got=f"version {version} of {operator.domain}, because of {', '.join(newer)}; there "
                f"{operator.name} is version {meant.since_version}",
                hint="call the newer version of the operator, or declare it in another domain or under another name",
            )
    for item in list(model.opset_import):
        if item.domain in versions:
            item.version = versions.pop(item.domain)
    for domain, version in versions.items():
        model.opset_import.add(domain=domain, version=version)
