"""The *Compare* page: two sides to pick, the totals that differ, both timelines, and the tables of what differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from dashboard import compare_ids as ids
from layouts import parts, shell
from vramscope.compare.difference import Difference, Figure
from vramscope.compare.rows import Row, cut, total
from vramscope.compare.words import TABLES, TOTAL_NAMES, amount, frames_of, signed
from vramscope.trace.categories import frame_text
from vramscope.units import format_bytes

TICK_MS = 1000
MOST_ROWS = 40
MOST_FRAMES = 40
SIDE_NAMES = {"a": "A", "b": "B"}
ALIGN_LABELS = (("start", "Start"), ("peak", "Peak"), ("moment", "Compared moments"))

_GRAPH_CONFIG: dict[str, Any] = {
    "displaylogo": False,
    # Plotly 7's "Share chart" uploads to Plotly's cloud; nothing here leaves the machine.
    "showSendToCloud": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d"],
}
LINES_EXPLAINED = (
    "Memory in use over both traces on one axis, which counts from where they are aligned. The dashed upright lines are the "
    "compared moments.",
    "drag: zoom · double click: everything",
)


def layout(base_path: str) -> Component:
    """Return the component tree of the page below ``base_path``."""
    body = [
        dcc.Location(id=ids.URL, refresh=False),
        dcc.Interval(id=ids.TICK, interval=TICK_MS),
        dcc.Store(id=ids.SELECTION),
        dcc.Store(id=ids.SHOWN_URL),
        html.Main(
            [
                html.H1("Compare two snapshots", className="aloud"),
                html.Div([_side("a"), _between(), _side("b")], className="compare-sides"),
                html.Div(id=ids.MESSAGE, role="status"),
                _empty(),
                _result(),
            ]
        ),
    ]
    header = [html.Div(className="grow"), shell.theme()]
    return shell.page(shell.COMPARE, base_path, header, body, skip_to=(ids.RESULT, "differences"))


def _side(side: str) -> Component:
    name = SIDE_NAMES[side]
    return html.Section(
        [
            html.Div(
                [html.H2(name, className=f"compare-letter {side}"), _dropdown(ids.file(side), "File", "choose a file")]
            ),
            html.Div(
                [
                    html.Label(["GPU", _dropdown(ids.device(side), f"GPU of {name}", "–")]),
                    html.Label(["Moment", _dropdown(ids.moment(side), f"Moment of {name}", "–")], className="moment"),
                    html.Label(
                        ["Event", dcc.Input(id=ids.event(side), type="number", min=0, step=1, debounce=True)],
                        className="event hidden",
                        id=ids.event_label(side),
                    ),
                ],
                className="compare-details",
            ),
            html.Div(id=ids.status(side), className="muted", role="status"),
        ],
        className="card compare-side",
        **{"aria-label": f"Side {name}"},
    )


def _dropdown(name: str, label: str, placeholder: str) -> Component:
    return html.Div(
        dcc.Dropdown(id=name, options=[], clearable=False, placeholder=placeholder),
        role="group",
        **{"aria-label": label},
    )


def _between() -> Component:
    return html.Div(
        [
            html.Button("⇄ Swap", id=ids.SWAP, className="button", title="Make A of B, and B of A"),
            dcc.Checklist(id=ids.IGNORE_LINES, options=[{"value": "yes", "label": "Ignore line numbers"}], value=[]),
        ],
        className="compare-between",
    )


def _empty() -> Component:
    return html.Section(
        [
            html.H2("What changed?"),
            html.P(
                "Choose two snapshots: from before and after a change, of two ranks, or the same file twice at two moments. "
                "The differences come first, the largest at the top; every table adds up to the byte."
            ),
            html.P(
                [
                    "The lists have the snapshots that jobs wrote, and the files that were opened on the Post-mortem page or by ",
                    html.Code("vramscope open FILE …"),
                ]
            ),
            html.P(["In a terminal: ", html.Code("vramscope diff A.pickle B.pickle")]),
        ],
        id=ids.EMPTY,
        className="card empty",
    )


def _result() -> Component:
    return html.Div(
        [
            html.Section(id=ids.TOTALS, className="compare-totals", **{"aria-label": "Totals"}),
            html.Section(
                [
                    parts.panel_head(
                        "Timelines",
                        html.Span(id=ids.LINES_NOTE, className="sub"),
                        html.Div(className="grow"),
                        html.Span("Align at", className="muted"),
                        parts.buttons(ids.ALIGN, ALIGN_LABELS, "start", "Align at"),
                        explained=LINES_EXPLAINED,
                    ),
                    html.Div(dcc.Graph(id=ids.LINES, responsive=True, config=_GRAPH_CONFIG), className="compare-lines"),
                ],
                className="card panel",
            ),
            html.Div(id=ids.TABLES, className="compare-tables"),
            html.Div(id=ids.NOTES),
        ],
        id=ids.RESULT,
        className="compare-result",
        hidden=True,
    )


def totals(found: Difference) -> list[Component]:
    """Return a card for each total: how much it differs, and both sides."""
    return [_total(figure) for figure in found.totals]


def _total(figure: Figure) -> Component:
    tone = "" if not figure.difference else "more" if figure.difference > 0 else "less"
    sides = f"{amount(figure.name, figure.a)} → {amount(figure.name, figure.b)}"
    return html.Article(
        [
            html.Div(TOTAL_NAMES[figure.name], className="figure-head"),
            html.Div(signed(figure.name, figure.difference), className=f"compare-difference {tone}"),
            html.Div(sides, className="muted"),
        ],
        className="card compare-total",
    )


def tables(found: Difference) -> list[Component]:
    """Return the tables of what differs; that of whole stacks has their frames to unfold."""
    shown = [_table(heading, getattr(found, name), counted, None) for name, heading, counted in TABLES]
    return [*shown, _table("live bytes by whole stack", found.stacks, "blocks", found)]


def _table(heading: str, rows: Sequence[Row], counted: str, stacks_of: Difference | None) -> Component:
    largest = max((abs(row.difference_bytes) for row in rows), default=0)
    head = [html.Th(text, scope="col") for text in ("difference", "", "A", "B", counted, "")]
    body = [_row(row, largest, stacks_of) for row in cut(rows, MOST_ROWS)]
    title = heading[0].upper() + heading[1:]
    sums = total(rows)
    note = f"{signed('_bytes', sums.difference_bytes)} in all"
    return html.Section(
        [
            parts.panel_head(title, html.Span(note, className="sub")),
            html.Div(
                html.Table([html.Thead(html.Tr(head)), html.Tbody(body)]),
                className="compare-scroll",
                tabIndex="0",
                role="region",
                **{"aria-label": title},
            ),
        ],
        className="card panel compare-table",
    )


def _row(row: Row, largest: int, stacks_of: Difference | None) -> Component:
    return html.Tr(
        [
            html.Td(signed("_bytes", row.difference_bytes), className="number strong"),
            html.Td(_bar(row.difference_bytes, largest), className="compare-bar-cell"),
            html.Td(format_bytes(row.a_bytes), className="number"),
            html.Td(format_bytes(row.b_bytes), className="number"),
            html.Td(f"{row.a_count} → {row.b_count}", className="number"),
            html.Td(
                [html.Span(row.change, className=f"badge {_tone(row)}"), " ", _label(row, stacks_of)], className="name"
            ),
        ]
    )


def _tone(row: Row) -> str:
    return {"only in A": "less", "only in B": "more", "grown": "more", "shrunk": "less", "the same": ""}[row.change]


def _label(row: Row, stacks_of: Difference | None) -> Component | str:
    frames = [] if stacks_of is None else frames_of(stacks_of, row)
    if not frames:
        return row.label
    lines = [frame_text(frame) for frame in frames[:MOST_FRAMES]]
    if len(frames) > MOST_FRAMES:
        lines.append(f"… {len(frames) - MOST_FRAMES} more frames")
    return html.Details([html.Summary(row.label), html.Pre("\n".join(lines), className="stack")])


def _bar(difference_bytes: int, largest: int) -> Component:
    """Return a bar from the middle: to the right where B has more, to the left where it has less."""
    share = 50 * abs(difference_bytes) / largest if largest else 0
    left = 50 if difference_bytes > 0 else 50 - share
    tone = "more" if difference_bytes > 0 else "less"
    style: dict[str, Any] = {"left": f"{left:.2f}%", "width": f"{share:.2f}%"}
    return html.Div(html.Span(className=tone, style=style), className="compare-bar", **{"aria-hidden": "true"})


def notes(found: Difference) -> list[Component]:
    """Return what the files cannot tell."""
    return [html.Div(line, className="banner quiet") for line in found.notes]


def message(line: str) -> Component:
    """Return why there is nothing to compare."""
    return html.Div(line, className="banner warn")
