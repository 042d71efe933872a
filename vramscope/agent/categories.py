"""The categories of memory owners: their codes on the wire and their names on the page. Standard library only."""

from __future__ import annotations

# The position is the code on the wire, so new ones go at the end.
CATEGORIES = (
    "unknown",
    "parameter",
    "buffer",
    "gradient",
    "optimizer state",
    "activation",
    "temporary",
    "communication",
    "library workspace",
    "KV cache",
    "input",
)
CODE = {name: code for code, name in enumerate(CATEGORIES)}
