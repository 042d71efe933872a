"""How tests and benchmarks start Debian's Chromium: headless, without a sandbox (they may run as root), and quiet."""

from __future__ import annotations

from playwright.sync_api import Browser, Playwright

EXECUTABLE = "/usr/bin/chromium"
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


def launch(playwright: Playwright, *, environ: dict[str, str | float | bool] | None = None) -> Browser:
    """Return a new browser; ``environ`` replaces this process's environment."""
    return playwright.chromium.launch(executable_path=EXECUTABLE, args=FLAGS, env=environ)
