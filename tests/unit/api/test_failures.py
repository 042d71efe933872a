"""Whatever is asked of the dashboard, and whatever fails in it, the answer and the console get one line and no traceback."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import flask
import pytest
from flask.testing import FlaskClient

from app import AppSettings, create_app
from dashboard import failures
from tests.fake_live_data import FakeLiveData
from tests.unit.api.conftest import TOKEN, bearer_client


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    """The whole application, Dash's routes included."""
    folder = tmp_path_factory.mktemp("state", numbered=True)
    folder.chmod(0o700)
    app = create_app(FakeLiveData(blocks=400), AppSettings(TOKEN, Path("/nowhere"), folder))
    with bearer_client(app.server) as client:
        yield client


@pytest.mark.parametrize(
    "body",
    [b"garbage", b"{}", b"[]", b"null", b'{"output": 5}', b'{"output": "x.y", "inputs": []}', b"[" * 100_000, b"\xff"],
)
def test_a_callback_that_makes_no_sense_is_one_line(
    application: FlaskClient, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    # WHEN
    response = application.post("/_dash-update-component", data=body, content_type="application/json")

    # THEN the asker gets a line
    assert response.status_code >= 400
    assert set(response.get_json()) == {"error"}
    # AND the console gets at most one, which is no traceback
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) <= 1
    assert all("\n" not in line and record.exc_info is None for line, record in zip(lines, caplog.records, strict=True))


@pytest.mark.parametrize("path", ["/_dash-component-suites/dash/../../etc/passwd", "/_dash-component-suites/dash/%00"])
def test_a_file_that_is_not_dashs_is_one_line(application: FlaskClient, path: str) -> None:
    response = application.get(path)
    assert response.status_code >= 400
    assert set(response.get_json()) == {"error"}


def test_a_method_that_a_page_does_not_have_is_one_line(application: FlaskClient) -> None:
    response = application.put("/")
    assert response.status_code == 405
    assert set(response.get_json()) == {"error"}


@pytest.mark.parametrize(
    "query", ["window_s=999999999999999999", "from=0&to=999999999999999999", "at=999999999999999999"]
)
def test_a_window_longer_than_any_history_is_all_of_it(application: FlaskClient, query: str) -> None:
    response = application.get(f"/live/timeline.json?job=job-1&{query}")
    assert response.status_code == 200
    assert "data" in response.get_json()


def test_a_failure_of_ours_names_its_place_and_hides_itself_from_the_asker(caplog: pytest.LogCaptureFixture) -> None:
    # GIVEN a route that fails with a text of two lines
    server = flask.Flask("tests")
    failures.guard(server)

    @server.get("/broken")
    def broken() -> str:
        raise LookupError("first line\nsecret line")

    # WHEN
    with caplog.at_level(logging.ERROR):
        response = server.test_client().get("/broken", headers={"Accept": "text/html"})

    # THEN
    assert response.status_code == 500
    assert "secret" not in response.get_data(as_text=True)
    assert "Traceback" not in caplog.text
    (line,) = [record.getMessage() for record in caplog.records]
    assert "GET '/broken' failed: LookupError: first line secret line" in line
    assert "test_failures.py:" in line
    assert "\n" not in line


def test_a_redirect_is_not_a_failure() -> None:
    server = flask.Flask("tests")
    failures.guard(server)
    server.add_url_rule("/folder/", view_func=lambda: "here")
    assert server.test_client().get("/folder").status_code == 308
