"""The report as JUnit XML: a suite per section, a test case per check."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from opforge.report._model import Check, Report, Section

__all__ = ["to_junit"]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to write; a kernel's message may hold any."""


def to_junit(report: Report) -> str:
    """Return the XML."""
    root = ElementTree.Element("testsuites", name=_text(report.subject))
    for section in report.sections:
        _suite(root, section)
    for name in ("tests", "failures", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(root: ElementTree.Element, section: Section) -> None:
    checks = list(section.checks)
    if section.state == "missing":
        checks = [Check(section.title, "left out", section.summary)]
    elif section.state == "failed" and all(check.state != "failed" for check in checks):
        checks.append(Check(section.title, "failed", section.summary))
    counts = {state: sum(check.state == state for check in checks) for state in ("failed", "left out")}
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name=_text(section.title),
        tests=str(len(checks)),
        failures=str(counts["failed"]),
        errors="0",
        skipped=str(counts["left out"]),
    )
    for check in checks:
        case = ElementTree.SubElement(suite, "testcase", classname=f"opforge.{section.kind}", name=_text(check.name))
        if check.state == "failed":
            first = check.detail.splitlines()[0] if check.detail else "failed"
            ElementTree.SubElement(case, "failure", message=_text(first)).text = _text(check.detail)
        elif check.state == "left out":
            ElementTree.SubElement(case, "skipped", message=_text(check.detail))


def _text(text: str) -> str:
    return _NOT_XML.sub("�", text)
