"""Bytes by stack as a Plotly icicle, the outermost frame at the top."""

from __future__ import annotations

from typing import Any

from vramscope.trace.stack_tree import StackTree
from vramscope.units import format_bytes

LONGEST_LABEL = 60
LONGEST_HOVER = 400


def figure(tree: StackTree) -> dict[str, Any]:
    """Return the figure; node ids are "all" for the root, else its path of places among its siblings, which is stable."""
    ids = _ids(tree)
    return {
        "data": [
            {
                "type": "icicle",
                "ids": ids,
                "parents": [ids[parent] if parent >= 0 else "" for parent in tree.parent],
                "labels": [_safe(_short(label)) for label in tree.label],
                "values": tree.size_bytes,
                "branchvalues": "total",
                "sort": False,
                "tiling": {"orientation": "v"},
                "text": [format_bytes(size) for size in tree.size_bytes],
                "textinfo": "label+text",
                "customdata": [
                    [_safe(label[:LONGEST_HOVER]), count] for label, count in zip(tree.label, tree.count, strict=True)
                ],
                "hovertemplate": "%{customdata[0]}<br>%{text} in %{customdata[1]} blocks (%{percentRoot:.1%})<extra></extra>",
            }
        ],
        "layout": {"margin": {"l": 0, "r": 0, "t": 0, "b": 0}},
    }


def _ids(tree: StackTree) -> list[str]:
    ids, children = [], [0] * len(tree.parent)
    for parent in tree.parent:
        if parent < 0:
            ids.append("all")
            continue
        ids.append(f"{ids[parent]}/{children[parent]}")
        children[parent] += 1
    return ids


def _short(label: str) -> str:
    """Return a label without the folders of its files, which the hover text has."""
    words = [part.rpartition("/")[2] if "/" in part and "(" not in part else part for part in label.split(" ")]
    shown = " ".join(f"({word.rpartition('/')[2]}" if word.startswith("(") and "/" in word else word for word in words)
    return shown if len(shown) <= LONGEST_LABEL else f"{shown[: LONGEST_LABEL - 1]}…"


def _safe(text: str) -> str:
    """Return text in which Plotly finds no tags: a function may be called <lambda>, and a file anything."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
