"""The last boundary of a request: whatever went wrong is one line, to who asked and on the console, and never a traceback."""

from __future__ import annotations

import logging

import flask
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

from dashboard.auth import refusal
from vramscope.errors import with_place

log = logging.getLogger("vramscope.dashboard")


def guard(server: flask.Flask) -> None:
    """Answer the failures of every route of ``server``, Dash's own included, where the route has no answer of its own."""

    @server.errorhandler(HTTPException)
    def refused(error: HTTPException) -> Response | HTTPException:
        if error.response is not None or error.code is None or error.code < 400:
            return error
        return refusal(error.code, error.description or error.name)

    @server.errorhandler(Exception)
    def failed(error: Exception) -> Response:
        log.error("vramscope: %s %r failed: %s", flask.request.method, flask.request.path[:100], with_place(error))
        return refusal(500, "vramscope could not answer this request; the terminal where it runs says why")
