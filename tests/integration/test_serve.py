"""``vramscope serve`` as a user runs it: the printed URL, its own collector, a busy port, signals, a proxy's path."""

from __future__ import annotations

import http.cookiejar
import json
import re
import signal
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.integration.commands import ROOT, VRAMSCOPE, Command, bearer, eventually, fetch, running, short_folder

SERVE = (*VRAMSCOPE, "serve", "--port", "0")


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as found:
        yield found


def url_of(command: Command) -> tuple[str, str]:
    """Return the address that was printed, up to the query, and the token in it."""
    address, _, token = command.line("vramscope: ").removeprefix("vramscope: ").partition("?token=")
    return address, token


def collector_pid(command: Command) -> int:
    match = re.search(r"pid (\d+)", command.line("no collector was running"))
    assert match
    return int(match[1])


def is_alive(pid: int) -> bool:
    """Return whether ``pid`` runs; a zombie, which a container's init may leave for a while, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_printed_url_opens_the_page_and_the_api(folder: Path) -> None:
    with running(SERVE, folder=folder) as serve:
        # GIVEN what was printed
        address, token = url_of(serve)
        port = urlsplit(address).port
        assert address == f"http://127.0.0.1:{port}/"
        assert f"ssh -L {port}:127.0.0.1:{port} " in serve.line("from another machine")

        # WHEN a browser opens the URL
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
        with browser.open(f"{address}?token={token}", timeout=60) as page:
            # THEN it gets the page, without the token in its address, and the cookie opens the rest
            assert page.url == address
            assert b"_dash-config" in page.read()
        with browser.open(f"{address}api/v1/jobs", timeout=60) as jobs:
            assert json.load(jobs) == {"jobs": []}

        # AND a program with the token gets the API, one without does not
        assert json.loads(fetch(f"{address}api/v1/jobs", token)) == {"jobs": []}
        with pytest.raises(urllib.error.HTTPError) as refused:
            fetch(f"{address}api/v1/jobs")
        with refused.value as answer:
            assert answer.code == 401
        assert json.loads(fetch(f"{address}healthz"))["collector"] is True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_cleanly_with_the_collector_that_it_started(folder: Path, number: int) -> None:
    with running(SERVE, folder=folder) as serve:
        # GIVEN
        url_of(serve)
        collector = collector_pid(serve)
        assert is_alive(collector)

        # WHEN
        status = serve.end(number)

        # THEN
        assert status == 0
        assert serve.errors == ""
        eventually(lambda: not is_alive(collector), lambda: "the collector still runs")
        assert not (folder / "run" / "collector.sock").exists()


def test_a_collector_that_runs_already_is_used_and_left_running(folder: Path) -> None:
    with running((*VRAMSCOPE, "collect", "--no-nvml"), folder=folder) as collector:
        collector.line("collecting on")
        with running(SERVE, folder=folder) as serve:
            address, _ = url_of(serve)
            assert json.loads(fetch(f"{address}healthz"))["collector"] is True
            assert serve.end() == 0
            assert "collector" not in serve.output
        assert collector.process.poll() is None


def test_it_serves_without_a_collector_when_told_to(folder: Path) -> None:
    with running((*SERVE, "--no-collector"), folder=folder) as serve:
        address, token = url_of(serve)
        assert json.loads(fetch(f"{address}healthz"))["collector"] is False
        assert json.loads(fetch(f"{address}api/v1/jobs", token)) == {"jobs": []}
        assert not (folder / "run" / "collector.sock").exists()


def test_a_busy_port_is_one_line_and_starts_nothing(folder: Path) -> None:
    # GIVEN
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        # WHEN
        serve = Command((*VRAMSCOPE, "serve", "--port", str(port)), folder=folder)

        # THEN
        assert serve.process.wait(60) == 2
    assert serve.errors == f"vramscope: port {port} of 127.0.0.1 is in use; choose another with --port\n"
    assert serve.output == ""
    assert not (folder / "run").exists()


def test_a_collector_that_cannot_start_is_one_line(folder: Path) -> None:
    # GIVEN a state folder that other users may read
    (folder / "state").mkdir(mode=0o755)

    # WHEN
    serve = Command(SERVE, folder=folder)

    # THEN
    assert serve.process.wait(60) == 2
    assert serve.errors.count("\n") == 1
    assert "chmod 700" in serve.errors


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1"])
def test_a_host_that_is_not_here_is_one_line(folder: Path, host: str) -> None:
    serve = Command((*SERVE, "--host", host), folder=folder)
    assert serve.process.wait(60) == 2
    assert serve.errors.startswith(f"vramscope: cannot listen on {host}: ")
    assert serve.errors.count("\n") == 1


def test_the_token_may_come_from_the_environment(folder: Path) -> None:
    with running((*SERVE, "--no-collector"), folder=folder, environ={"VRAMSCOPE_TOKEN": "given-token"}) as serve:
        address, token = url_of(serve)
        assert token == "given-token"
        assert json.loads(fetch(f"{address}api/v1/devices", "given-token")) == {"devices": []}


def test_a_token_that_a_url_would_change_is_refused_without_being_shown(folder: Path) -> None:
    serve = Command(SERVE, folder=folder, environ={"VRAMSCOPE_TOKEN": "a&b=secret words"})
    assert serve.process.wait(60) == 2
    assert serve.errors.count("\n") == 1
    assert "secret" not in serve.errors


def test_it_serves_under_a_proxys_path(folder: Path) -> None:
    with running((*SERVE, "--no-collector", "--base-path", "/tools/vs"), folder=folder) as serve:
        address, token = url_of(serve)
        assert urlsplit(address).path == "/tools/vs/"
        # The page asks for its parts below the path; a proxy that cuts it off asks without.
        assert json.loads(fetch(f"{address}api/v1/jobs", token)) == {"jobs": []}
        assert b'src="/tools/vs/_dash-component-suites/' in fetch(address, token)
        assert b'src="/tools/vs/_dash-component-suites/' in fetch(address.replace("/tools/vs", ""), token)


def test_a_checkouts_app_py_does_the_same_from_any_folder(folder: Path) -> None:
    app = (sys.executable, str(ROOT / "app.py"), "--port", "0")
    with running(app, folder=folder, cwd=folder) as serve:
        address, _ = url_of(serve)
        assert json.loads(fetch(f"{address}healthz"))["collector"] is True
        assert serve.end() == 0
        assert serve.errors == ""


def test_the_assets_are_served(folder: Path) -> None:
    with running((*SERVE, "--no-collector"), folder=folder) as serve:
        address, token = url_of(serve)
        page = fetch(address, token).decode()
        assets = re.findall(r'(?:href|src)="/(assets/[^"]+)"', page)
        assert any(".css" in name for name in assets)
        assert any(".js" in name for name in assets)
        for name in assets:
            assert fetch(f"{address}{name}", token)
        # The large scripts that the page needs later are named in its header, and are where that says.
        with urllib.request.urlopen(urllib.request.Request(address, headers=bearer(token)), timeout=60) as answer:
            links = re.findall(r"</([^>]+)>; rel=preload; as=script", answer.headers["Link"])
        assert len(links) == 4
        assert not any(fetch(f"{address}{name}", token).startswith(b"<!DOCTYPE") for name in links)
        # Everything comes from here: no other host is named by a script or a style sheet.
        assert re.findall(r'(?:href|src)="(?:https?:)?//', page) == []


def test_the_token_reaches_neither_the_collectors_command_line_nor_its_log(folder: Path) -> None:
    with running(SERVE, folder=folder) as serve:
        _, token = url_of(serve)
        assert token not in Path(f"/proc/{collector_pid(serve)}/cmdline").read_text()
        assert token not in (folder / "state" / "collector.log").read_text()


def test_a_request_too_large_is_refused_before_it_is_read(folder: Path) -> None:
    with running((*SERVE, "--no-collector"), folder=folder) as serve:
        # GIVEN a stranger without a token who announces 1 TiB
        address, _ = url_of(serve)
        with socket.create_connection(("127.0.0.1", urlsplit(address).port or 0), timeout=60) as stranger:
            stranger.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1099511627776\r\n\r\n")

            # THEN
            assert stranger.recv(100).startswith(b"HTTP/1.1 413 ")


def test_many_requests_at_once_are_all_answered_in_silence(folder: Path) -> None:
    with running((*SERVE, "--no-collector"), folder=folder) as serve:
        address, token = url_of(serve)
        with ThreadPoolExecutor(64) as callers:
            answers = list(callers.map(lambda _: fetch(f"{address}api/v1/jobs", token), range(300)))
        assert {json.loads(answer)["jobs"] == [] for answer in answers} == {True}
        assert serve.errors == ""
