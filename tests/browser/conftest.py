"""The real page over a LiveData in memory, in real Chromium."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from werkzeug.serving import WSGIRequestHandler, make_server

from app import AppSettings, create_app
from tests.fake_live_data import FakeLiveData

CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
TOKEN = "browser-test-token"
# Generous, because the machine may be busy with other things.
PATIENCE_MS = 30_000

Serve = Callable[[FakeLiveData], str]
Open = Callable[..., Page]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield found
        found.close()


class QuietHandler(WSGIRequestHandler):
    """Keeps connections open, as waitress does, and writes no log."""

    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: object) -> None:
        pass


class Served:
    """The application on a free port, or on the given one, in a thread; unlike waitress it can be stopped within a process."""

    def __init__(self, live: FakeLiveData, dumps_folder: Path, port: int = 0) -> None:
        live.dumps_folder = dumps_folder
        app = create_app(live, AppSettings(TOKEN, dumps_folder, dumps_folder / "state"))
        self._server = make_server("127.0.0.1", port, app.server, threaded=True, request_handler=QuietHandler)
        self.port = self._server.port
        self.url = f"http://127.0.0.1:{self.port}/?token={TOKEN}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Serve the page over the given LiveData; returns its URL."""
    running: list[Served] = []

    def start(live: FakeLiveData) -> str:
        running.append(Served(live, tmp_path))
        return running[-1].url

    yield start
    for served in running:
        served.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Open a URL in a browser of its own; the test fails if the page logged an error."""
    errors: list[str] = []
    contexts = []

    def start(
        url: str,
        *,
        width: int = 1440,
        height: int = 900,
        scheme: str = "dark",
        wait: bool = True,
        offline_errors: bool = False,
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            accept_downloads=True,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        # The browser logs each request that fails, and Dash throws at an answer that is no JSON: a test that stops the
        # server expects both.
        if not offline_errors:
            page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url)
        if wait:
            page.wait_for_selector("#picture[data-painted]")
        return page

    yield start
    for context in contexts:
        context.close()
    assert errors == []
