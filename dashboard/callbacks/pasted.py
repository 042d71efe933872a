"""What a pasted out-of-memory message or memory summary says, as tables in bytes: what it does not say is shown as absent."""

from __future__ import annotations

from typing import Any

from dash import html
from dash.development.base_component import Component

from vramscope.memory_summary import SummaryTable, read_summaries
from vramscope.oom_reading import describe, describe_table, findings, named_sizes
from vramscope.oom_text import OutOfMemory, Size, read_out_of_memory
from vramscope.units import MISSING

LIMIT_CHARS = 4 << 20
NOTHING = "No out-of-memory message and no memory summary is in this text; paste the error's own lines."


def reading(text: str) -> list[Component]:
    """Return what is found in ``text``, or the line that says that nothing is."""
    if len(text) > LIMIT_CHARS:
        return [_line("This is more than a paste; cut out the part with the error, or use: vramscope oom FILE", "warn")]
    messages, tables = read_out_of_memory(text), read_summaries(text)
    if not messages and not tables:
        return [_line(NOTHING if text.strip() else "Paste the error's lines first.", "warn")]
    return [*map(_message, messages), *map(_summary, tables)]


def _line(text: str, tone: str) -> Component:
    return html.P(text, className=tone)


def _message(message: OutOfMemory) -> Component:
    """Return a message's title, its sizes, and what follows from them."""
    rows = [_size_row(label, size) for label, size in named_sizes(message)] if message.has_numbers else []
    table = [_table(("", "as printed", "bytes", "within ± bytes"), rows)] if rows else []
    return html.Article([html.H3(describe(message)[0]), *table, html.Ul([html.Li(line) for line in findings(message)])])


def _size_row(label: str, size: Size | None) -> list[str]:
    if size is None:
        return [label, "absent", MISSING, MISSING]
    return [label, size.text, f"{size.size_bytes:,}", f"{size.tolerance_bytes:,}"]


def _summary(table: SummaryTable) -> Component:
    title, *lines = describe_table(table)
    return html.Article([html.H3(title), html.Pre("\n".join(lines))])


def _table(head: tuple[str, ...], rows: list[list[str]]) -> Component:
    def cells(row: Any) -> list[Component]:
        return [html.Th(row[0], scope="row"), *map(html.Td, row[1:])]

    return html.Table(
        [html.Thead(html.Tr(list(map(html.Th, head)))), html.Tbody([html.Tr(cells(row)) for row in rows])]
    )
