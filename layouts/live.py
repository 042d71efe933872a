"""The *Live* page: the GPU as one bar, six figures, the segment map, the timeline, the selected block and the owners."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from dashboard import ids
from layouts import charts, details, parts, shell

# How often the figures, the pickers and the table are refreshed; the map and the timeline have their own, faster pulse.
TICK_MS = 1000

LINE_TO_ADD = "import vramscope; vramscope.attach(model, optimizer)"

# What each figure means, in one sentence for a beginner, and how it is made.
EXPLANATIONS = {
    ids.CARD_ACTIVE: (
        "Active",
        "Memory that tensors use now, and blocks already freed that another stream still has to finish with.",
        "active = allocated + pending free",
    ),
    ids.CARD_RESERVED: (
        "Reserved",
        "What PyTorch has taken from the GPU: memory in use, and free memory it keeps to hand out again.",
        "reserved = sum of the segments = active + cached free",
    ),
    ids.CARD_INACTIVE_SPLIT: (
        "Inactive split",
        "Free memory that PyTorch cannot give back, because a tensor lives in the same segment. The share is the stranded ratio.",
        "stranded ratio = inactive split / reserved; its trend compares the peaks of the minute's first and last quarter",
    ),
    ids.CARD_LARGEST_FIT: (
        "Largest request that fits",
        "The largest single tensor that could be allocated now, after all that PyTorch would try. It needs one unbroken "
        "hole. It comes from the newest map, which can be a little older than the other figures.",
        "largest of: a cached block, a new segment, a new segment after releasing cached ones",
    ),
    ids.CARD_RETRIES: (
        "Allocation retries",
        "How often PyTorch had to empty its cache and ask the GPU again. Each one stalls the job; many announce an out-of-memory.",
        "num_alloc_retries, num_ooms of torch.cuda.memory_stats()",
    ),
    ids.CARD_OTHERS: (
        "Not PyTorch's",
        "Memory of this GPU that no PyTorch allocator of this job reserved: CUDA context, libraries, NCCL, other programs.",
        "estimate = NVML used − reserved − reserved by the job's other ranks",
    ),
}


def layout(base_path: str) -> Component:
    """Return the component tree of the page below ``base_path``."""
    body = [
        dcc.Location(id=ids.URL, refresh=False),
        dcc.Interval(id=ids.TICK, interval=TICK_MS),
        dcc.Store(id=ids.SELECTION),
        dcc.Store(id=ids.PAUSED, data=False),
        dcc.Store(id=ids.CHARTS_DUE),
        dcc.Store(id=ids.SELECTED_BLOCK),
        html.Div(
            "The dashboard does not answer – retrying. The page keeps its last picture.",
            id=ids.SERVER_GONE,
            className="banner bad",
            role="alert",
            hidden=True,
        ),
        html.Div(id=ids.BANNERS, role="status"),
        html.Main([empty(), picture()]),
        html.Footer(id=ids.FOOTER),
        dump_panel(),
        html.Div(id=ids.MAP_TIP, role="tooltip", hidden=True),
    ]
    return shell.page(shell.LIVE, base_path, _header(), body, skip_to=(ids.MAP, "segment map"))


def _header() -> list[Component]:
    return [
        html.Div(
            dcc.Dropdown(
                id=ids.JOB, options=[], clearable=False, searchable=False, placeholder="no job yet", className="job"
            ),
            className="job-picker",
        ),
        html.Span(
            "simulated GPU",
            id=ids.SIMULATED,
            className="badge simulated",
            title="This job's GPU is a simulation of PyTorch's allocator, not a device.",
            hidden=True,
        ),
        shell.picker("Rank", ids.RANK_PICKER, ids.RANK, ids.RANK_MENU),
        shell.picker("GPU", ids.GPU_PICKER, ids.GPU, ids.GPU_MENU),
        html.Div(className="grow"),
        html.Div(
            [
                html.I(className="dot"),
                html.Span("connecting", id=ids.LIGHT_TEXT, role="status"),
                html.Span(id=ids.LIGHT_RATE, title="maps a second, and how old the newest was when it was painted"),
            ],
            id=ids.LIGHT,
            className="light",
        ),
        shell.theme(),
        html.Button("Pause", id=ids.PAUSE, className="button", **{"aria-pressed": "false"}),
        html.Div(
            [
                html.Button("Dump snapshot", id=ids.DUMP, className="button primary"),
                html.Button(
                    "▾",
                    id=ids.DUMPS,
                    className="button primary",
                    title="Snapshots written so far",
                    **{"aria-label": "Snapshots written so far"},
                ),
            ],
            className="split",
        ),
    ]


def empty() -> Component:
    """Return what is shown while no job is known: what to do, and what is being waited for."""
    return html.Section(
        [
            html.H1("No job is connected yet"),
            html.P("Add one line to a training script on this machine, after the model and the optimizer exist:"),
            html.Div(
                [html.Code(LINE_TO_ADD), dcc.Clipboard(content=LINE_TO_ADD, title="Copy the line", className="copy")],
                className="line-to-add",
            ),
            html.P(
                ["The job may run already or start later: this page picks it up by itself, within a second or two."]
            ),
            html.H2("No GPU at hand?"),
            html.P(["This trains a GPT of a billion parameters on a simulated GPU and prints the URL of its page:"]),
            html.Div(
                [
                    html.Code("vramscope demo"),
                    dcc.Clipboard(content="vramscope demo", title="Copy the command", className="copy"),
                ],
                className="line-to-add",
            ),
            html.P([html.I(className="waiting"), "Waiting for a job to say hello …"], className="muted", role="status"),
        ],
        id=ids.EMPTY,
        className="card empty",
        hidden=True,
    )


def picture() -> Component:
    """Return everything that shows a job's memory."""
    return html.Div(
        [
            _device(),
            _figures(),
            html.Div([charts.segment_map(), charts.timeline()], className="left"),
            html.Div([details.block(), details.owners()], className="right"),
        ],
        id=ids.PICTURE,
        className="picture",
        hidden=True,
    )


def _device() -> Component:
    return html.Section(
        [
            html.Div(
                [html.H1(id=ids.DEVICE_NAME), html.Div(id=ids.DEVICE_PARTS, className="legend")],
                className="device-head",
            ),
            html.Div(id=ids.DEVICE_BAR),
        ],
        className="card device",
        **{"aria-label": "The whole GPU"},
    )


def _figures() -> Component:
    fit = html.Label(
        [
            "Would it fit? ",
            dcc.Input(
                id=ids.FIT_SIZE, type="text", value="2 GiB", debounce=True, maxLength=16, className="fit-size", size="8"
            ),
        ],
        className="fit",
    )
    extra = {ids.CARD_LARGEST_FIT: fit}
    return html.Section(
        [parts.figure_card(name, *EXPLANATIONS[name], extra.get(name)) for name in ids.CARDS],
        className="figures",
        **{"aria-label": "Key figures"},
    )


def dump_panel() -> Component:
    """Return the list of snapshots, which opens over the page."""
    return html.Section(
        [
            parts.panel_head(
                "Snapshots",
                html.Div(className="grow"),
                html.Button("Close", id=ids.DUMP_CLOSE, className="button small"),
            ),
            html.Div(id=ids.DUMP_MESSAGE, role="status", className="dump-message"),
            html.Div(id=ids.DUMP_LIST),
        ],
        id=ids.DUMP_PANEL,
        className="card panel dump-panel",
        hidden=True,
        tabIndex="-1",
        **{"aria-label": "Snapshots"},
    )
