"""The pieces that pages are made of: figures with their explanation, groups of buttons, legends and bars."""

from __future__ import annotations

from collections.abc import Sequence

from dash import dcc, html
from dash.development.base_component import Component


def buttons(
    name: str, options: Sequence[tuple[str, str]], value: str, label: str, *, remembered: bool = False
) -> Component:
    """Return a row of joined buttons of which one is chosen: radio buttons, so arrow keys and readers know them.

    ``remembered`` keeps the choice in the browser, for the next visit.
    """
    return html.Div(
        dcc.RadioItems(
            id=name,
            options=[{"value": key, "label": text} for key, text in options],
            value=value,
            inline=True,
            persistence=remembered,
            persistence_type="local",
            className="joined",
        ),
        role="group",
        **{"aria-label": label},
    )


def search(name: str, placeholder: str, label: str) -> Component:
    """Return a field for a text to look for; it tells of a change once the typing rests."""
    field = dcc.Input(
        id=name, type="search", placeholder=placeholder, maxLength=200, debounce=0.3, className="search-text"
    )
    return html.Label([html.Span(label, className="aloud"), field], className="search-label")


def hint(title: str, explanation: str, formula: str) -> list[Component]:
    """Return a question mark that shows the explanation on hover and on keyboard focus, and tells it to screen readers."""
    return [
        html.Button("?", type="button", className="hint", **{"aria-label": f"{title}: {explanation} {formula}"}),
        html.Div([html.P(explanation), html.Code(formula)], className="hint-text", **{"aria-hidden": "true"}),
    ]


def figure_card(name: str, title: str, explanation: str, formula: str, extra: Component | None = None) -> Component:
    """Return one of the figures over the map; a callback fills the element with the id ``name``."""
    body = html.Div(id=name, className="figure-body")
    head = html.Div([html.Span(title), *hint(title, explanation, formula)], className="figure-head")
    parts = [head, body]
    return html.Article([*parts, extra] if extra else parts, className="card figure")


def figure_body(
    value: str, unit: str, detail: Sequence[tuple[str, str]], bar: Sequence[tuple[str, float]] = ()
) -> list[Component]:
    """Return what fills a figure's card: the value, a line of (text, tone) parts, and a bar of (colour, share)."""
    return [
        html.Div([html.Span(value, className="value"), html.Span(unit, className="unit")], className="figure-value"),
        html.Div([html.Span(text, className=tone) for text, tone in detail], className="figure-detail"),
        stacked_bar(bar, "bar"),
    ]


def stacked_bar(parts: Sequence[tuple[str, float]], class_name: str) -> Component:
    """Return a bar of (colour name, share of 1); what is left of 1 stays empty."""
    pieces = [
        html.Span(className=f"fill {colour}", style={"width": f"{share * 100:.3f}%"})
        for colour, share in parts
        if share > 0
    ]
    return html.Div(pieces, className=class_name, **{"aria-hidden": "true"})


def legend(entries: Sequence[tuple[str, str]], most: str | None = None) -> list[Component]:
    """Return swatches of (colour name, text); the one of the colour ``most`` stands out."""
    return [
        html.Span([html.I(className=f"swatch fill {colour}"), text], className="most" if colour == most else None)
        for colour, text in entries
    ]


def panel_head(title: str, *children: Component, explained: tuple[str, str] | None = None) -> Component:
    """Return a panel's head; ``explained`` is an explanation with a formula or a rule."""
    about = hint(title, *explained) if explained else []
    return html.Div([html.Div([html.H2(title), *about], className="panel-title"), *children], className="panel-head")
