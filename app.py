"""Wires a ``LiveData`` into the Dash application; ``python app.py`` serves it as ``vramscope serve`` does."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # Before the imports below, so that a missing package ends in the command's one line and not in a traceback.
    from vramscope.__main__ import main

    sys.exit(main(["serve", *sys.argv[1:]]))

import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import dash
import flask
from dash.development.base_component import Component

import dashboard.api
import dashboard.auth
import dashboard.callbacks
import dashboard.callbacks.compare
import dashboard.callbacks.postmortem
import dashboard.failures
import dashboard.headers
import dashboard.page_routes
import dashboard.postmortem_routes
from collectors.gateway import Gateway
from collectors.launch import ensure_running
from collectors.settings import CollectorSettings, dumps_folder
from dashboard import serving
from dashboard.files import SnapshotFiles
from layouts import compare as compare_layout
from layouts import live as live_layout
from layouts import postmortem as postmortem_layout
from layouts import shell
from vramscope.records import LiveData
from vramscope.snapshot.opening import shown

ASSETS_FOLDER = Path(__file__).resolve().parent / "assets"


@dataclass(frozen=True)
class AppSettings:
    """What the application is told at its start.

    ``token`` opens every route but ``/healthz``. ``dumps_folder`` is where jobs' snapshot files lie; nothing outside it
    is ever handed out. ``state_folder`` is where uploads and what was read of snapshots are kept. ``hosts`` are names by
    which this machine may be addressed besides localhost and IP addresses. ``base_path`` begins and ends with a slash.
    """

    token: str
    dumps_folder: Path
    state_folder: Path
    hosts: tuple[str, ...] = ()
    base_path: str = "/"


@dataclass(frozen=True)
class ServeSettings:
    """What ``vramscope serve`` or ``open`` was told: where to listen, the token, the collector to ask, and the files to open."""

    host: str
    port: int
    token: str
    base_path: str
    hosts: tuple[str, ...]
    collector: CollectorSettings
    start_collector: bool
    files: tuple[Path, ...] = ()


def create_app(live: LiveData, settings: AppSettings, files: SnapshotFiles | None = None) -> dash.Dash:
    """Return the application of the *Live* page; its WSGI callable, ``.server``, answers for all pages.

    Each page is a Dash application of its own on the one server, so that none loads or waits for another's parts.
    ``files`` are the snapshots that the pages may open; without them a registry is made that knows those of its last start.
    """
    server = flask.Flask("vramscope")
    if files is None:
        files = SnapshotFiles(settings.state_folder, live, dumps_folder=settings.dumps_folder)
    live_page = _page(server, shell.LIVE, "live", live_layout.layout, settings.base_path)
    dashboard.callbacks.register(live_page, live, files)
    postmortem_page = _page(server, shell.POSTMORTEM, "postmortem", postmortem_layout.layout, settings.base_path)
    dashboard.callbacks.postmortem.register(postmortem_page)
    compare_page = _page(server, shell.COMPARE, "compare", compare_layout.layout, settings.base_path)
    dashboard.callbacks.compare.register(compare_page, files)
    dashboard.page_routes.register(server, live)
    dashboard.postmortem_routes.register(server, files)
    dashboard.api.register(server, live, dumps_folder=settings.dumps_folder)
    dashboard.auth.protect(server, token=settings.token, hosts=settings.hosts)
    hashes = [found for page in (live_page, postmortem_page, compare_page) for found in page.csp_hashes()]
    dashboard.headers.secure(server, script_hashes=tuple(dict.fromkeys(hashes)))
    dashboard.headers.preload(server, pages=tuple(shell.PAGES.values()))
    dashboard.failures.guard(server)
    return live_page


def _page(server: flask.Flask, name: str, assets: str, layout: Callable[[str], Component], base_path: str) -> dash.Dash:
    """Return a page's Dash application on ``server``; beside the shared assets it loads those in its own folder."""
    path = shell.PAGES[name]
    folders = [found.name for found in ASSETS_FOLDER.iterdir() if found.is_dir()]
    app = dash.Dash(
        "vramscope",
        server=server,
        assets_folder=str(ASSETS_FOLDER),
        assets_path_ignore=[f"^{re.escape(folder)}$" for folder in folders if folder != assets],
        requests_pathname_prefix=f"{base_path}{path}",
        routes_pathname_prefix=f"/{path}",
        title="vramscope" if name == shell.LIVE else f"{name} – vramscope",
        update_title=None,
        serve_locally=True,
    )
    app.layout = partial(layout, base_path)
    return app


def serve(settings: ServeSettings) -> int:
    """Serve the dashboard until a signal; a collector that it had to start stops with it. Returns the exit status."""
    serving.exit_on_signals()
    listening = serving.bind(settings.host, settings.port)
    collector_pid = ensure_running(settings.collector) if settings.start_collector else None
    try:
        state_folder = settings.collector.state_folder
        live = Gateway(settings.collector.runtime_folder, state_folder)
        files = SnapshotFiles(state_folder, live, dumps_folder=dumps_folder(state_folder))
        pages = {
            f"{shell.PAGES[shell.POSTMORTEM]}?file={files.add_path(path)}": shown(Path(path.name))
            for path in settings.files
        }
        hosts = (*serving.own_hosts(settings.host), *settings.hosts)
        app_settings = AppSettings(settings.token, dumps_folder(state_folder), state_folder, hosts, settings.base_path)
        app = create_app(live, app_settings, files)
        port = listening.getsockname()[1]
        lines = serving.addresses(settings.host, port, token=settings.token, base_path=settings.base_path, pages=pages)
        if collector_pid is not None:
            lines.append(f"no collector was running: started one (pid {collector_pid}) that stops with this dashboard")
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
        serving.serve(app.server, listening, base_path=settings.base_path)
    finally:
        if collector_pid is not None:
            with suppress(ProcessLookupError):
                os.kill(collector_pid, signal.SIGTERM)
    return 0
