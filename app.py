"""Wires a ``LiveData`` into the Dash application; ``python app.py`` serves it as ``vramscope serve`` does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import dash
import flask

import dashboard.api
import dashboard.auth
import dashboard.callbacks
import dashboard.headers
import dashboard.page_routes
from layouts import shell
from vramscope.records import LiveData

ASSETS_FOLDER = Path(__file__).resolve().parent / "assets"


@dataclass(frozen=True)
class AppSettings:
    """What the application is told at its start.

    ``token`` opens every route but ``/healthz``. ``hosts`` are names by which this machine may be addressed besides
    127.0.0.1, localhost and [::1]. ``base_path`` begins and ends with a slash. ``dumps_folder`` is where jobs' snapshot
    files lie; nothing outside it is ever handed out.
    """

    token: str
    dumps_folder: Path
    hosts: tuple[str, ...] = ()
    base_path: str = "/"


def create_app(live: LiveData, settings: AppSettings) -> dash.Dash:
    """Return the Dash application over ``live``; its WSGI callable is ``.server``."""
    server = flask.Flask("vramscope")
    app = dash.Dash(
        "vramscope",
        server=server,
        assets_folder=str(ASSETS_FOLDER),
        requests_pathname_prefix=settings.base_path,
        routes_pathname_prefix="/",
        title="vramscope",
        update_title=None,
        serve_locally=True,
    )
    app.layout = shell.layout
    dashboard.callbacks.register(app, live)
    dashboard.page_routes.register(server, live)
    dashboard.api.register(server, live, dumps_folder=settings.dumps_folder)
    dashboard.auth.protect(server, token=settings.token, hosts=settings.hosts)
    dashboard.headers.secure(server, script_hashes=app.csp_hashes())
    return app


if __name__ == "__main__":
    import sys

    from vramscope.__main__ import main

    sys.exit(main(["serve", *sys.argv[1:]]))
