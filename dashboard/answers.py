"""JSON answers of the routes: arrays become lists, and NaN becomes null."""

from __future__ import annotations

from typing import Any

import flask
import orjson


def as_json(value: Any, status: int = 200) -> flask.Response:
    """Return ``value`` (plain values, dataclasses, contiguous numpy arrays) as a JSON response."""
    return flask.Response(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY), status, mimetype="application/json")
