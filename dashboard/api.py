"""The HTTP API: ``/api/v1``, ``/healthz`` and the download of snapshot files, as docs/api.md describes them."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import flask
from werkzeug.exceptions import HTTPException

import vramscope
from dashboard import api_records
from dashboard.answers import as_json
from vramscope.columns import DeviceMap
from vramscope.errors import VramscopeError
from vramscope.records import JobInfo, LiveData

DEVICE = "/jobs/<job_id>/devices/<int:device>"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
MAX_DEVICE = 1023
DEFAULT_MAX_AGE_MS = 250
DEFAULT_POINTS = 600
MAX_POINTS = 5000
DEFAULT_OWNERS = 200
MAX_OWNERS = 100_000
# Larger than any time in µs, any address and any count; keeps hostile numbers out of SQLite, which refuses them.
MAX_INTEGER = 2**63 - 1


def register(server: flask.Flask, live: LiveData, *, dumps_folder: Path) -> None:
    """Add the routes over ``live`` to ``server``; downloads come from ``dumps_folder`` only."""
    server.register_blueprint(_api(live), url_prefix="/api/v1")

    @server.get("/healthz")
    def healthz() -> flask.Response:
        return as_json({"status": "ok", "collector": live.status().connected, "version": vramscope.__version__})

    @server.get("/dumps/<path:dump_id>")
    def download(dump_id: str) -> flask.Response:
        path = _dump_path(live, dump_id, dumps_folder)
        if path is None:
            return _error(404, f"there is no snapshot file {dump_id!r}; GET /api/v1/jobs/<id>/dumps lists them")
        return flask.send_file(path, "application/octet-stream", as_attachment=True, download_name=path.name)


def _dump_path(live: LiveData, dump_id: str, dumps_folder: Path) -> Path | None:
    """Return the file of a recorded dump, or None where it is gone or lies (through a link, say) outside the folder."""
    for found in live.dumps():
        if found.id == dump_id:
            path = Path(found.path).resolve()
            return path if path.is_relative_to(dumps_folder.resolve()) and path.is_file() else None
    return None


def _api(live: LiveData) -> flask.Blueprint:
    api = flask.Blueprint("api", __name__)

    @api.errorhandler(HTTPException)
    def refused(error: HTTPException) -> flask.Response:
        return _error(error.code or 500, error.description or error.name)

    @api.errorhandler(VramscopeError)
    def failed(error: VramscopeError) -> flask.Response:
        return _error(503, str(error))

    @api.before_request
    def check_device() -> flask.Response | None:
        device = (flask.request.view_args or {}).get("device", 0)
        return _error(404, f"there is no device {device}") if device > MAX_DEVICE else None

    # Without this, Dash's route for every path would answer an unknown one with its page.
    @api.route("/", defaults={"path": ""}, methods=METHODS)
    @api.route("/<path:path>", methods=METHODS)
    def unknown(path: str) -> flask.Response:
        return _error(404, f"there is no {flask.request.method} /api/v1/{path}; docs/api.md lists the routes")

    _add_job_routes(api, live)
    _add_device_routes(api, live)
    return api


def _add_job_routes(api: flask.Blueprint, live: LiveData) -> None:
    @api.get("/jobs")
    def jobs() -> flask.Response:
        return as_json({"jobs": [api_records.job(job) for job in live.jobs()]})

    @api.get("/jobs/<job_id>/dumps")
    def dumps(job_id: str) -> flask.Response:
        return as_json({"dumps": [api_records.dump(found) for found in live.dumps(_job(live, job_id).id)]})

    @api.post("/jobs/<job_id>/dump")
    def dump(job_id: str) -> flask.Response:
        return as_json(api_records.dump(live.dump(_job(live, job_id).id, _rank())), 201)

    @api.get("/devices")
    def devices() -> flask.Response:
        return as_json({"devices": live.readings()})


def _add_device_routes(api: flask.Blueprint, live: LiveData) -> None:
    @api.get(f"{DEVICE}/stats")
    def stats(job_id: str, device: int) -> flask.Response:
        # Asking for the map first makes the figures that derive from it as fresh as the caller wants them.
        newest = live.device_map(job_id, device, _rank(), max_age_s=_max_age_s())
        found = live.stats(job_id, device, _rank())
        if found is None:
            _refuse_unknown(live, job_id, device)
        return as_json(api_records.stats(found, newest, simulated=_job(live, job_id).simulated))

    @api.get(f"{DEVICE}/map")
    def device_map(job_id: str, device: int) -> flask.Response:
        return as_json(api_records.device_map(_map(live, job_id, device)))

    @api.get(f"{DEVICE}/owners")
    def device_owners(job_id: str, device: int) -> flask.Response:
        limit = _integer("limit", DEFAULT_OWNERS, low=0, high=MAX_OWNERS)
        return as_json(api_records.device_owners(_map(live, job_id, device), limit=limit))

    @api.get(f"{DEVICE}/timeline")
    def timeline(job_id: str, device: int) -> flask.Response:
        first, last = _optional_integer("from"), _optional_integer("to")
        if first is not None and last is not None and first > last:
            flask.abort(400, "'from' is later than 'to'; both are Unix times in µs")
        points = _integer("points", DEFAULT_POINTS, low=2, high=MAX_POINTS)
        found = live.timeline(job_id, device, _rank(), from_unix_us=first, to_unix_us=last, points=points)
        if found is None:
            _refuse_unknown(live, job_id, device)
        return as_json(api_records.timeline(found))


def _map(live: LiveData, job_id: str, device: int) -> DeviceMap:
    found = live.device_map(job_id, device, _rank(), max_age_s=_max_age_s())
    if found is None:
        _refuse_unknown(live, job_id, device)
    return found


def _job(live: LiveData, job_id: str) -> JobInfo:
    for job in live.jobs():
        if job.id == job_id:
            return job
    flask.abort(404, f"there is no job {job_id!r}; GET /api/v1/jobs lists them")


def _refuse_unknown(live: LiveData, job_id: str, device: int) -> NoReturn:
    """Answer 404 with a line that tells an unknown job from a device of which nothing has arrived."""
    _job(live, job_id)
    rank = _rank()
    where = f"device {device}" if rank is None else f"rank {rank}, device {device}"
    flask.abort(404, f"nothing is known of {where} of job {job_id!r}; GET /api/v1/jobs lists its ranks and devices")


def _rank() -> int | None:
    return _optional_integer("rank")


def _max_age_s() -> float:
    return _integer("max_age_ms", DEFAULT_MAX_AGE_MS) / 1000


def _integer(name: str, default: int, *, low: int = 0, high: int = MAX_INTEGER) -> int:
    found = _optional_integer(name, low=low, high=high)
    return default if found is None else found


def _optional_integer(name: str, *, low: int = 0, high: int = MAX_INTEGER) -> int | None:
    """Return a query parameter as an integer, None where it is not given; answers 400 where it is not one in range."""
    text = flask.request.args.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and low <= int(text) <= high):
        flask.abort(400, f"{name!r} must be an integer from {low} to {high}, not {text[:40]!r}")
    return int(text)


def _error(status: int, line: str) -> flask.Response:
    return as_json({"error": line}, status)
