"""The frame that every page has: the header with the links to the others, the theme, and the pickers' form."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from dashboard import ids
from layouts import parts

LIVE = "Live"
POSTMORTEM = "Post-mortem"
COMPARE = "Compare"

# The pages by name, and where each lies below the base path.
PAGES = {LIVE: "", POSTMORTEM: "postmortem/", COMPARE: "compare/"}


def page(
    name: str, base_path: str, header: list[Component], body: list[Component], *, skip_to: tuple[str, str]
) -> Component:
    """Return the page ``name`` with ``header`` in its top line; ``skip_to`` is the id and the name of what follows it."""
    links = [
        html.A(other, href=base_path + path, **({"aria-current": "page"} if other == name else {}))
        for other, path in PAGES.items()
    ]
    top = html.Header(
        [
            html.Div([html.I(className="logo"), "vramscope"], className="brand"),
            html.Nav(links, **{"aria-label": "Pages"}),
            *header,
        ],
        className="top",
    )
    return html.Div(
        [html.A(f"Skip to the {skip_to[1]}", href=f"#{skip_to[0]}", className="skip"), top, *body], className="shell"
    )


def theme() -> Component:
    """Return the switch between the themes; all pages share what was chosen."""
    return parts.buttons(
        ids.THEME, (("system", "Auto"), ("light", "Light"), ("dark", "Dark")), "system", "Theme", remembered=True
    )


def picker(label: str, host: str, name: str, menu: str) -> Component:
    """Return a picker that is a row of buttons, or a menu where there are more than a row can hold."""
    return html.Div(
        [
            html.Span(label, className="picker-label"),
            html.Div(
                dcc.RadioItems(id=name, options=[], inline=True, className="joined"),
                role="group",
                **{"aria-label": label},
            ),
            dcc.Dropdown(id=menu, options=[], clearable=False),
        ],
        id=host,
        className="picker hidden",
    )
