"""Text as people paste it, joined again: without colours, log prefixes, comment marks, quotes, wraps and blanks.

A terminal or a person may break a line anywhere, inside a word or a number. So nothing is matched against the lines: every
blank is dropped, and what is left is read as one string. Each step is linear in the length of the text.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

# As far into a line as a rank is looked for: a prefix, not a one-line file of a megabyte.
PREFIX_CHARS = 300

_TERMINAL = re.compile(
    r"(?:\x1b|\\u001[bB]|\\x1[bB]|\\033|\\e)(?:\[[0-9;?]{0,30}[A-Za-z]|\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\))"
    r"|\[\d{1,3}(?:;\d{1,3}){0,4}m"  # the escape character itself was lost on the way
)
_ESCAPED_BREAK = re.compile(r"\\{1,4}[nrt]|\r\n?")
_ENTITY = re.compile(r"&(?:[A-Za-z]{2,8}|#\d{1,5}|#[xX][0-9A-Fa-f]{1,4});")
_MARKUP = re.compile(r"</?[A-Za-z][^<>\n]{0,100}>")

# What tools and people put in front of each line. Every repeat is bounded, and nothing follows the group: no backtracking.
_LINE_PREFIX = re.compile(
    r"""^(?:
        [\ \t\#>*+"'`~%/]+ | -{1,2}[\ \t] | E[\ \t]{2,}                # comments, quotes, lists, diffs, pytest
      | \[[^\[\]\n]{1,80}\]:?                                           # [rank3]: [engine.py:160] [2024-11-06 23:42:20]
      | \([^()=\n]{0,80}=[^()\n]{0,80}\)                                # (VllmWorker rank=5 pid=50999)
      | (?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b:?
      | \d{4}[-/]\d\d[-/]\d\d[T\ ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?
      | (?:\d\d-\d\d\ )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?
      | [EWIF]\d{4}\ \d\d:\d\d:\d\d\.\d{1,9}[\ \t]+\d{1,8}[\ \t]         # glog
      | [\w./-]{1,80}\.\w{1,4}:\d{1,6}\]                                # engine.py:387]
      | [Rr]ank\ ?\d{1,5}: | \d{1,5}:[\ \t]                             # Rank 3:, and srun's labels
      | [\w.-]{0,60}[-_]\d{1,6}[\ \t]{0,20}\|[\ \t]                     # a container's name and a bar
    )+""",
    re.MULTILINE | re.VERBOSE,
)

# A minus sign is kept before a digit only: a hyphen may stand at a wrap.
_DROPPED = re.compile(r"-(?!\d)|[^A-Za-z0-9.,:;()|_\n-]+")
_RANK = re.compile(r"\brank[ \t]*[=:][ \t]*(\d{1,5})|\brank[ \t]?(\d{1,5})[\]:]", re.IGNORECASE)


@dataclass(frozen=True)
class PastedText:
    """One paste: ``squeezed`` is what is left of it, in lower case, with ``|`` as the only mark of a table's cells."""

    squeezed: str
    _lines: tuple[str, ...]
    _starts: tuple[int, ...]

    def rank_at(self, offset: int) -> int | None:
        """Return the rank that the line of ``squeezed[offset]`` names in front, or None."""
        line = self._lines[bisect_right(self._starts, offset) - 1]
        found = _RANK.search(line[:PREFIX_CHARS])
        return int(found[1] or found[2]) if found else None


def read_pasted(text: str, *, cells: bool = False) -> PastedText:
    """Return ``text`` squeezed; ``cells`` keeps the bars between a table's cells."""
    text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    text = _ESCAPED_BREAK.sub("\n", _TERMINAL.sub("", text))
    lines = text.split("\n")
    squeezed = _DROPPED.sub("", _LINE_PREFIX.sub("", _MARKUP.sub("", text))).lower()
    kept = (squeezed if cells else squeezed.replace("|", "")).split("\n")
    return PastedText("".join(kept), tuple(lines), tuple(_offsets(kept)))


def _offsets(lines: Iterable[str]) -> Iterable[int]:
    return accumulate((len(line) for line in lines), initial=0)
