"""The error output of a process without notices of builds: those come only where a machine is busy."""

import re

__all__ = ["without_notices"]

_NOTICE = re.compile(r"(?m)^opforge: (?:compiling .* ahead\)|process \S+ is building .*, waiting for it)\n")


def without_notices(said: str) -> str:
    """Leave out that something is compiled, which is said after 2 s, and that another process is awaited, after 5."""
    return _NOTICE.sub("", said)
