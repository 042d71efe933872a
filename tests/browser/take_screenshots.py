"""Takes pictures of every state of the page: ``python -m tests.browser.take_screenshots [FOLDER] [--url URL]``.

Without a URL the pictures are of made-up jobs, one for each state; with one they are of the dashboard that runs there.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.conftest import CHROMIUM, FLAGS, PATIENCE_MS, Served
from tests.fake_live_data import FakeLiveData

DESKTOP, PHONE = (1440, 900), (390, 844)
SETTLE_MS = 3000


def nothing(page: Page) -> None:
    """Leave the page as it opens."""


def select_a_block(page: Page) -> None:
    box = page.locator("#map .nsewdrag").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.4)
    page.mouse.move(5, 5)
    page.wait_for_selector("#block-facts dl")


def colour_by_owner(page: Page) -> None:
    page.locator("#map-colour label", has_text="Owner").click()
    select_a_block(page)


def show_table(page: Page) -> None:
    page.locator("#map-view label", has_text="Table").click()


def open_snapshots(page: Page) -> None:
    page.click("#dump")
    page.wait_for_selector("#dump-list a")


@dataclass(frozen=True)
class Shot:
    """One picture: its file's name, the job, the look, and what is done before."""

    name: str
    live: dict[str, Any] = field(default_factory=dict)
    scheme: str = "dark"
    size: tuple[int, int] = DESKTOP
    act: Callable[[Page], None] = nothing


SHOTS = (
    Shot("busy-dark", {"ranks": 4, "devices": 2}, act=select_a_block),
    Shot("busy-light", {"ranks": 4, "devices": 2}, "light", act=select_a_block),
    Shot("owners-dark", {"ranks": 4}, act=colour_by_owner),
    Shot("owners-light", {"ranks": 4}, "light", act=colour_by_owner),
    Shot("table-light", {}, "light", act=show_table),
    Shot("snapshots-dark", {}, act=open_snapshots),
    Shot("hundred-thousand-blocks-dark", {"blocks": 100_000, "ranks": 16}),
    Shot("expandable-light", {"expandable": True, "ranks": 1}, "light"),
    Shot("simulated-ended-dark", {"simulated": True, "ended": True}),
    Shot("disconnected-light", {"connected": False}, "light"),
    Shot("empty-light", {"no_jobs": True}, "light"),
    Shot("empty-phone-dark", {"no_jobs": True}, size=PHONE),
    Shot("phone-dark", {"ranks": 4, "devices": 2}, size=PHONE),
    Shot("phone-light", {"ranks": 4, "devices": 2}, "light", PHONE),
)

RUNNING = (Shot("live-dark", act=select_a_block), Shot("live-light", scheme="light", act=colour_by_owner))


def take(browser: Browser, url: str, shot: Shot, folder: Path) -> None:
    """Open ``url`` in the shot's look, do what it does, and write its picture."""
    width, height = shot.size
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=shot.scheme)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(url)
    page.wait_for_selector("#empty:visible" if shot.live.get("no_jobs") else "#picture[data-painted]")
    page.wait_for_timeout(SETTLE_MS)
    shot.act(page)
    page.wait_for_timeout(SETTLE_MS)
    page.screenshot(path=folder / f"{shot.name}.png", full_page=shot.size == PHONE)
    context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("docs/screenshots"))
    parser.add_argument("--url", help="a dashboard that runs, with its token")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as dumps:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        for shot in RUNNING if arguments.url else SHOTS:
            if arguments.url:
                take(browser, arguments.url, shot, arguments.folder)
            else:
                served = Served(FakeLiveData(**shot.live), Path(dumps))
                take(browser, served.url, shot, arguments.folder)
                served.close()
            print(arguments.folder / f"{shot.name}.png")
        browser.close()


if __name__ == "__main__":
    main()
