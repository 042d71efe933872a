"""Every route but /healthz needs the token, a host that is ours, and writes come from our own pages."""

from __future__ import annotations

import logging

import flask
import pytest
from flask.testing import FlaskClient

from dashboard import auth
from tests.unit.api.conftest import TOKEN
from vramscope.errors import BadInputError

EVERY_ROUTE = (
    "/",
    "/any/page",
    "/api/v1/jobs",
    "/api/v1/devices",
    "/api/v1/jobs/job-1/devices/0/stats",
    "/api/v1/jobs/job-1/devices/0/map",
    "/api/v1/jobs/job-1/devices/0/owners",
    "/api/v1/jobs/job-1/devices/0/timeline",
    "/api/v1/jobs/job-1/dumps",
    "/api/v1/nothing",
    "/dumps/dump-0",
)


@pytest.mark.parametrize("path", EVERY_ROUTE)
def test_a_request_without_the_token_gets_one_line(stranger: FlaskClient, path: str) -> None:
    # WHEN
    response = stranger.get(path)

    # THEN
    assert response.status_code == 401
    assert response.get_json() == {"error": auth.MISSING_TOKEN}
    assert "\n" not in auth.MISSING_TOKEN


@pytest.mark.parametrize("path", EVERY_ROUTE[:-1])
def test_the_bearer_token_opens_every_route(client: FlaskClient, path: str) -> None:
    assert client.get(path).status_code == (404 if "nothing" in path else 200)


@pytest.mark.parametrize("credentials", ["Bearer wrong-token", "Bearer ", "Basic dXNlcjp0b2tlbg==", "Bearer tökén", ""])
def test_a_wrong_bearer_token_is_refused(stranger: FlaskClient, credentials: str) -> None:
    response = stranger.get("/api/v1/jobs", headers={"Authorization": credentials.encode("latin-1", "replace")})
    assert response.status_code in (401, 403)
    assert set(response.get_json()) == {"error"}


def test_a_browser_gets_the_refusal_as_a_page(stranger: FlaskClient) -> None:
    # WHEN
    response = stranger.get("/?token=wrong-token", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})

    # THEN
    assert response.status_code == 403
    assert response.mimetype == "text/html"
    assert auth.WRONG_TOKEN in response.text


def test_healthz_needs_no_token(stranger: FlaskClient) -> None:
    assert stranger.get("/healthz").status_code == 200


def test_the_token_of_the_url_becomes_a_cookie(stranger: FlaskClient) -> None:
    # WHEN the printed URL is opened
    response = stranger.get(f"/any/page?token={TOKEN}&job=a%26b&rank=1", base_url="http://127.0.0.1:8050")

    # THEN the token leaves the address, and a cookie that no script and no other site can use carries it
    assert response.status_code == 303
    assert response.location == "/any/page?job=a%26b&rank=1"
    cookie = response.headers["Set-Cookie"]
    assert cookie.startswith(f"vramscope-8050={TOKEN};")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["Referrer-Policy"] == "no-referrer"

    # AND the next requests need nothing else
    assert stranger.get("/any/page", base_url="http://127.0.0.1:8050").text == "the page"


def test_the_cookie_is_of_one_port_and_one_base_path(server: flask.Flask) -> None:
    with server.test_client() as client:
        # GIVEN a dashboard behind a proxy at /tools/
        response = client.get(
            f"/?token={TOKEN}", base_url="https://node-03:8443/tools", environ_overrides={"SCRIPT_NAME": "/tools"}
        )

    # THEN
    cookie = response.headers["Set-Cookie"]
    assert cookie.startswith("vramscope-8443=")
    assert {"Secure", "Path=/tools"} <= {part.strip() for part in cookie.split(";")}
    assert response.location == "/tools/"


def test_a_cookie_of_an_earlier_start_is_named_as_such(stranger: FlaskClient) -> None:
    stranger.set_cookie("vramscope-default", "the-token-of-yesterday")
    response = stranger.get("/")
    assert (response.status_code, response.get_json()) == (401, {"error": auth.WRONG_TOKEN})


@pytest.mark.parametrize("path", ["//evil.example/", "/%2Fevil.example/", "/\\evil.example/", "/%0d%0aX-Evil:%201"])
def test_the_redirect_stays_on_this_host(stranger: FlaskClient, path: str) -> None:
    response = stranger.get(f"{path}?token={TOKEN}")
    if response.status_code == 303:
        assert response.location.startswith("/")
        assert not response.location.startswith(("//", "/\\"))
        assert "X-Evil" not in response.headers


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8050", "localhost:8050", "LOCALHOST", "[::1]:8050", "node-03:8050", "10.1.2.3", "[fe80::1]:80"]
)
def test_our_own_hosts_are_answered(client: FlaskClient, host: str) -> None:
    assert client.get("/api/v1/jobs", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8050", "localhost.evil.example", "node-04"])
def test_a_name_that_is_not_ours_is_refused(client: FlaskClient, host: str) -> None:
    # GIVEN a page of evil.example whose name was rebound to 127.0.0.1
    # WHEN
    response = client.get("/healthz", headers={"Host": host})

    # THEN
    assert response.status_code == 403
    assert "--allow-host" in response.get_json()["error"]


@pytest.mark.parametrize("host", ["", "localhost:port", "[::1", "a b", "localhost/../x", "user@localhost:1:2"])
def test_a_host_header_of_garbage_is_refused(client: FlaskClient, host: str) -> None:
    assert client.get("/api/v1/jobs", headers={"Host": host}).status_code in (400, 403)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_post_from_another_origin_is_refused(client: FlaskClient, headers: dict[str, str]) -> None:
    response = client.post("/api/v1/jobs/job-1/dump", base_url="http://127.0.0.1:8050", headers=headers)
    assert response.status_code == 403
    assert "origin" in response.get_json()["error"]


@pytest.mark.parametrize("headers", [{"Origin": "http://127.0.0.1:8050", "Sec-Fetch-Site": "same-origin"}, {}])
def test_a_post_of_our_own_page_or_of_a_program_is_answered(client: FlaskClient, headers: dict[str, str]) -> None:
    response = client.post("/api/v1/jobs/job-1/dump", base_url="http://127.0.0.1:8050", headers=headers)
    assert response.status_code == 201


def test_each_answer_carries_the_security_headers(client: FlaskClient, stranger: FlaskClient) -> None:
    for response in (client.get("/"), stranger.get("/"), stranger.get("/healthz")):
        policy = response.headers["Content-Security-Policy"]
        assert "script-src 'self' 'sha256-abc';" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe-eval" not in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cache-Control"] == "no-store"


def test_the_token_is_never_logged(stranger: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        stranger.get(f"/?token={TOKEN}")
        stranger.get("/?token=wrong-token")
    assert TOKEN not in caplog.text
    assert "wrong-token" not in caplog.text


@pytest.mark.parametrize(
    "token", ["short", "with space in it", "sign&of=query", "new\nline-token", "ümlaut-token", "x" * 257]
)
def test_a_token_that_a_url_would_change_is_refused_without_being_repeated(token: str) -> None:
    with pytest.raises(BadInputError) as caught:
        auth.check_token(token)
    assert token not in str(caught.value)


def test_a_made_token_is_long_and_new_each_time() -> None:
    first, second = auth.make_token(), auth.make_token()
    assert first != second
    assert auth.check_token(first) == first
    assert len(bytes.fromhex(first)) == 32
