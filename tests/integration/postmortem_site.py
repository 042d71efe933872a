"""A server over a registry of snapshot files, as a browser with the token sees it: what tests of the post-mortem routes share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flask
import orjson
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

import dashboard.auth
import dashboard.failures
import dashboard.files
from dashboard import postmortem_routes
from dashboard.files import SnapshotFiles
from tests.fake_live_data import FakeLiveData
from tests.waiting import wait_for
from vramscope.records import DumpInfo

TOKEN = "a-token-of-the-tests"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Live(FakeLiveData):
    """Jobs in memory that have written the given dumps."""

    def __init__(self) -> None:
        super().__init__(blocks=100)
        self.written: list[DumpInfo] = []

    def dumps(self, job_id: str | None = None) -> list[DumpInfo]:
        return self.written


def said(answer: TestResponse) -> Any:
    """Return the JSON of an answer."""
    return answer.json


@dataclass
class Site:
    """A server over a registry, as a browser sees it that has the token."""

    folder: Path
    live: Live
    files: SnapshotFiles
    server: flask.Flask
    client: FlaskClient

    def get(self, path: str, **arguments: Any) -> TestResponse:
        return self.client.get(f"/postmortem/{path}", query_string=arguments)

    def json(self, path: str, **arguments: Any) -> Any:
        answer = self.get(path, **arguments)
        assert answer.status_code == 200, answer.text
        return said(answer)

    def opened(self, path: Path) -> str:
        """Register and open a file; return the start of its routes."""
        return self.wait(self.files.add_path(path))

    def wait(self, file_id: str, state: str = "open") -> str:
        self.client.post(f"/postmortem/files/{file_id}/open")
        wait_for(lambda: self.state(file_id)["state"] not in ("waiting", "opening"), "the file")
        assert self.state(file_id)["state"] == state, self.state(file_id)
        return f"files/{file_id}"

    def state(self, file_id: str) -> Any:
        return self.json(f"files/{file_id}/state.json")

    def upload(self, raw: bytes, name: str, piece: int = 1 << 20) -> str:
        """Send a file in pieces, and return its id."""
        begun = self.client.post("/postmortem/uploads", json={"name": name, "bytes": len(raw)})
        assert begun.status_code == 201, begun.text
        upload = f"/postmortem/uploads/{said(begun)['upload']}"
        for offset in range(0, len(raw), piece):
            put = self.client.put(f"{upload}?offset={offset}", data=raw[offset : offset + piece])
            assert put.status_code == 200, put.text
        return str(said(self.client.post(f"{upload}/finish"))["file"])


def site_over(folder: Path) -> Site:
    live = Live()
    files = SnapshotFiles(folder / "state", live, dumps_folder=folder / "state" / "dumps")
    server = flask.Flask("tests")
    postmortem_routes.register(server, files)
    dashboard.auth.protect(server, token=TOKEN, hosts=())
    dashboard.failures.guard(server)
    client = server.test_client()
    client.environ_base["HTTP_AUTHORIZATION"] = BEARER["Authorization"]
    return Site(folder, live, files, server, client)


def frame_of(answer: TestResponse) -> tuple[dict[str, Any], memoryview]:
    """Return the header of a binary frame, and what follows it."""
    assert answer.status_code == 200, answer.text
    size = int.from_bytes(answer.data[4:8], "little")
    return orjson.loads(answer.data[8 : 8 + size]), memoryview(answer.data)[8 + size :]
