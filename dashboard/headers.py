"""The headers of every answer: security, what a browser may keep, and what it will need next."""

from __future__ import annotations

import re
from collections.abc import Sequence

import flask

# Dash names its bundles by version and file time, so these may be kept; everything else shows data or asks for it.
CACHEABLE_PATHS = re.compile(r"/(?:[a-z]+/)?(?:_dash-component-suites/|assets/|_favicon\.ico$)")

# What Dash asks for only once its renderer runs; measured, the first picture comes a fifth earlier when it is there by then.
NEEDED_LATER = (
    "plotly/package_data/plotly.min.js",
    "dash/dcc/async-graph.js",
    "dash/dcc/async-dropdown.js",
    "dash_ag_grid/async-community.js",
)


def content_security_policy(script_hashes: Sequence[str]) -> str:
    """Return the policy: scripts from here and the given inline ones only; styles inline, since Dash and Plotly write them.

    ``blob:`` and ``data:`` images are Plotly's export and the canvas that goes into it.
    """
    return "; ".join(
        (
            "default-src 'self'",
            " ".join(("script-src 'self'", *script_hashes)),
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "worker-src 'self' blob:",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )


def secure(server: flask.Flask, *, script_hashes: Sequence[str]) -> None:
    """Add the headers to each answer of ``server``."""
    policy = content_security_policy(script_hashes)

    @server.after_request
    def add_headers(response: flask.Response) -> flask.Response:
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["X-Frame-Options"] = "DENY"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        if not CACHEABLE_PATHS.match(flask.request.path) or response.status_code >= 400:
            response.headers["Cache-Control"] = "no-store"
        return response


def preload(server: flask.Flask, *, pages: Sequence[str]) -> None:
    """Name in the answer of each page the large scripts that it will need, so that they are fetched meanwhile.

    ``pages`` are the pages' paths below the server's root; each has its scripts below its own.
    """
    own = [page for page in pages if page]

    @server.after_request
    def add_links(response: flask.Response) -> flask.Response:
        if response.status_code == 200 and response.mimetype == "text/html":
            page = next((found for found in own if flask.request.path.startswith(f"/{found}")), "")
            suites = f"{flask.request.script_root}/{page}_dash-component-suites"
            links = (f"<{suites}/{name}>; rel=preload; as=script" for name in NEEDED_LATER)
            response.headers["Link"] = ", ".join(links)
        return response
