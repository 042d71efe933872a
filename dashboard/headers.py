"""The security headers of every answer, and what a browser may keep of it."""

from __future__ import annotations

from collections.abc import Sequence

import flask

# Dash names its bundles by version and file time, so these may be kept; everything else shows data or asks for it.
CACHEABLE_PATHS = ("/_dash-component-suites/", "/assets/", "/_favicon.ico")


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
        if not flask.request.path.startswith(CACHEABLE_PATHS) or response.status_code >= 400:
            response.headers["Cache-Control"] = "no-store"
        return response
