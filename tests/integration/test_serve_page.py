"""The page of a real ``vramscope serve`` in real Chromium, under the content security policy that users get."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.chromium import launch
from tests.integration.commands import VRAMSCOPE, running, short_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as found:
        yield found


@pytest.mark.parametrize("base_path", ["/", "/tools/vramscope/"])
def test_the_page_works_under_its_own_policy(folder: Path, base_path: str) -> None:
    command = (*VRAMSCOPE, "serve", "--port", "0", "--base-path", base_path)
    # Chromium leaves its own files in the temporary folder; they go with the test's.
    with running(command, folder=folder) as serve, sync_playwright() as playwright:
        # GIVEN a browser that says what it refuses
        browser = launch(playwright, environ={**os.environ, "TMPDIR": str(folder)})
        page = browser.new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", lambda request: complaints.append(f"{request.url} {request.failure}"))
        page.on("response", lambda answer: complaints.append(answer.url) if answer.status >= 400 else None)

        # WHEN the printed URL is opened
        address = serve.line("vramscope: ").removeprefix("vramscope: ")
        page.goto(address)

        # THEN the page of a collector without jobs comes up, and nothing was refused
        page.wait_for_selector("text=vramscope.attach(model, optimizer)", timeout=60_000)
        assert page.url.startswith(address.partition("?")[0])
        assert "token" not in page.url
        assert complaints == []
        browser.close()
