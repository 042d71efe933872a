"""What the page does when something is picked, pressed, or a second has passed."""

from __future__ import annotations

from dash import Dash

from dashboard.callbacks import block, browser, charts, dumps, figures, owners, pickers, states
from dashboard.files import SnapshotFiles
from vramscope.records import LiveData


def register(app: Dash, live: LiveData, files: SnapshotFiles) -> None:
    """Add all callbacks to ``app``; they read from ``live``, and ``files`` are the snapshots that may be opened."""
    pickers.register(app, live)
    states.register(app, live)
    figures.register(app, live)
    owners.register(app, live)
    block.register(app, live)
    dumps.register(app, live, files)
    charts.register(app)
    browser.register(app)
