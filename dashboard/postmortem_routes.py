"""The routes of snapshot files: which there are, their opening, and uploads; those of a device are in postmortem_views."""

from __future__ import annotations

from typing import Any

import flask
from werkzeug.exceptions import HTTPException

from dashboard import postmortem_views
from dashboard.answers import as_json
from dashboard.files import FileNotOpen, SnapshotFiles, UnknownFile, listing
from dashboard.files_opened import OpenedDevice
from dashboard.files_opening import OPEN
from dashboard.files_uploads import CHUNK_BYTES, UploadRefused
from vramscope.errors import VramscopeError
from vramscope.trace.timeline_view import STEP, TIME

PREFIX = "/postmortem"
FILE = "/files/<file_id>"


def register(server: flask.Flask, files: SnapshotFiles) -> None:
    """Add the routes under ``/postmortem/`` to ``server``."""
    routes = flask.Blueprint("postmortem", __name__)
    routes.register_error_handler(VramscopeError, _failed)
    routes.register_error_handler(HTTPException, _refused)
    _add_file_routes(routes, files)
    _add_upload_routes(routes, files)
    postmortem_views.add_routes(routes, files)
    server.register_blueprint(routes, url_prefix=PREFIX)


def _failed(error: VramscopeError) -> flask.Response:
    if isinstance(error, UploadRefused):
        received = {} if error.received is None else {"received": error.received}
        return as_json({"error": str(error)} | received, error.status)
    status = 404 if isinstance(error, UnknownFile) else 409 if isinstance(error, FileNotOpen) else 400
    return as_json({"error": str(error)}, status)


def _refused(error: HTTPException) -> flask.Response:
    return as_json({"error": error.description or error.name}, error.code or 500)


def _add_file_routes(routes: flask.Blueprint, files: SnapshotFiles) -> None:
    @routes.get("/files.json")
    def list_files() -> flask.Response:
        return as_json({"files": listing(files)})

    @routes.post(f"{FILE}/open")
    def open_file(file_id: str) -> flask.Response:
        files.start(file_id)
        return as_json(_state(files, file_id), 202)

    @routes.post(f"{FILE}/cancel")
    def cancel(file_id: str) -> flask.Response:
        files.cancel(file_id)
        return as_json(_state(files, file_id))

    @routes.get(f"{FILE}/state.json")
    def state(file_id: str) -> flask.Response:
        return as_json(_state(files, file_id))

    @routes.delete(FILE)
    def remove(file_id: str) -> flask.Response:
        files.remove(file_id)
        return as_json({})


def _add_upload_routes(routes: flask.Blueprint, files: SnapshotFiles) -> None:
    @routes.post("/uploads")
    def begin_upload() -> flask.Response:
        try:
            asked = flask.request.get_json()
        except RecursionError:
            asked = None
        name, size = (asked.get("name"), asked.get("bytes")) if isinstance(asked, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(size, int) or isinstance(size, bool):
            raise UploadRefused('an upload begins with {"name": text, "bytes": size}', 400)
        return as_json({"upload": files.uploads.begin(name, size), "chunk_bytes": CHUNK_BYTES}, 201)

    @routes.put("/uploads/<upload>")
    def add_piece(upload: str) -> flask.Response:
        offset = flask.request.args.get("offset", "")
        if not (offset.isascii() and offset.isdigit() and len(offset) <= 18):
            raise UploadRefused("'offset' is the byte at which the piece begins", 400)
        if (flask.request.content_length or 0) > CHUNK_BYTES:
            raise UploadRefused("a piece has at most 8 MiB", 413)
        return as_json({"received": files.uploads.add(upload, int(offset), flask.request.get_data())})

    @routes.post("/uploads/<upload>/finish")
    def finish_upload(upload: str) -> flask.Response:
        return as_json({"file": files.finish_upload(upload)}, 201)

    @routes.delete("/uploads/<upload>")
    def cancel_upload(upload: str) -> flask.Response:
        files.uploads.cancel(upload)
        return as_json({})


def _state(files: SnapshotFiles, file_id: str) -> dict[str, Any]:
    record, found = files.record(file_id), files.state(file_id)
    progress = found.progress
    state: dict[str, Any] = {
        "file": file_id,
        "name": record.name,
        "state": found.state,
        "stage": None if progress is None else progress.stage,
        "done": None if progress is None else progress.done,
        "total": None if progress is None else progress.total,
        "error": found.error,
    }
    if found.state == OPEN:
        opened = files.opened(file_id)
        capacity = {number: files.capacity_bytes(file_id, number) for number in opened.devices}
        devices = [
            figures | _device(opened.devices[figures["device"]]) | {"capacity_bytes": capacity[figures["device"]]}
            for figures in opened.summary["devices"]
        ]
        state["snapshot"] = opened.summary | {"devices": devices}
    return state


def _device(device: OpenedDevice) -> dict[str, Any]:
    """Return what the page has to know of a device beyond its figures."""
    trace, timeline = device.trace, device.timeline
    axes = {} if timeline is None else timeline.axes
    peak = None if timeline is None else timeline.peak
    return {
        "axes": {name: [axes[name].begin, axes[name].end] if name in axes else None for name in (TIME, STEP)},
        "peak": None if peak is None else {"bytes": peak.peak_bytes, "event": peak.event},
        "moments": device.moments,
        "contradiction": trace.contradiction,
        "notes": trace.notes,
    }
