"""A Flask server with the API and its guards over a LiveData in memory, without Dash and without a socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import flask
import pytest
from flask.testing import FlaskClient

from dashboard import api, auth, headers
from tests.fake_live_data import FakeLiveData

TOKEN = "a-token-of-the-tests"


def bearer_client(server: flask.Flask) -> FlaskClient:
    """Return a program that sends the token with each request."""
    client = server.test_client()
    client.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {TOKEN}"
    return client


@pytest.fixture
def dumps_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "dumps"
    folder.mkdir()
    return folder


@pytest.fixture
def live(dumps_folder: Path) -> FakeLiveData:
    return FakeLiveData(blocks=400, ranks=2, devices=2, dumps_folder=dumps_folder)


@pytest.fixture
def server(live: FakeLiveData, dumps_folder: Path) -> flask.Flask:
    found = flask.Flask("tests")

    @found.get("/", defaults={"path": ""})
    @found.get("/<path:path>")
    def page(path: str) -> str:
        return "the page"

    api.register(found, live, dumps_folder=dumps_folder)
    auth.protect(found, token=TOKEN, hosts=["node-03"])
    headers.secure(found, script_hashes=["'sha256-abc'"])
    return found


@pytest.fixture
def stranger(server: flask.Flask) -> Iterator[FlaskClient]:
    """A client without a token."""
    with server.test_client() as client:
        yield client


@pytest.fixture
def client(server: flask.Flask) -> Iterator[FlaskClient]:
    """A program that sends the token with each request."""
    with bearer_client(server) as client:
        yield client
