"""File names of frames without the folders of a machine: what they lay under is nobody's business outside."""

from __future__ import annotations

import re

# Where installed packages begin, and the standard library; what lies behind is the same on every machine.
_PACKAGES = re.compile(r".*[\\/](?=(?:site-packages|dist-packages)[\\/])")
_STANDARD_LIBRARY = re.compile(r".*[\\/](?=python3\.\d+[\\/])")
# A home folder has its owner's name, which must not be one of the two parts that stay.
_HOME = re.compile(r".*[\\/](?:home|users)[\\/][^\\/]+[\\/]|[\\/]root[\\/]", re.IGNORECASE)
KEPT_PARTS = 2


def shorten(path: str) -> str:
    """Return ``path`` from site-packages or the standard library on; of others, the last two parts below a home folder."""
    for beginning in (_PACKAGES, _STANDARD_LIBRARY):
        found = beginning.match(path)
        if found:
            return path[found.end() :]
    home = _HOME.match(path)
    parts = [part for part in re.split(r"[\\/]", path[home.end() :] if home else path) if part]
    return "/".join(parts[-KEPT_PARTS:])
