"""How long it takes from ``vramscope serve`` to the first picture in Chromium: a job's map, and the page without a job.

Run: python benchmarks/serve_start.py [--runs 5]
The browser is open already, as a user's is. With a job, a collector has the last map of a small demo, which has ended: it
computes on the CPU what a real job computes on the GPU. Without one, the time includes the start of the dashboard's own collector.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.chromium import launch
from tests.integration.commands import VRAMSCOPE, Command, running, short_folder

LIMIT_S = 3.0
# What is on the screen when the user can begin to look.
PAINTED_MAP = "#picture[data-painted=true]"
EMPTY_PAGE = "#empty"
# Notes in the page itself when it is there: the question from outside waits for whatever the page does next.
NOTE_MOMENT = """
(() => {
  const look = () => {
    const found = document.querySelector(%r);
    if (found && found.checkVisibility()) window.pictureUnixMs = Date.now();
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})();
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="starts of each kind (%(default)s)")
    runs = parser.parse_args().runs
    print(f"{'first picture':<30}{'median s':>10}{'least':>8}{'most':>8}{'limit':>8}")
    with sync_playwright() as playwright:
        browser = launch(playwright)
        worst_s = max(
            report("a job's map", [start(browser, with_job=True) for _ in range(runs)]),
            report("no job, own collector", [start(browser, with_job=False) for _ in range(runs)]),
        )
    return 0 if worst_s <= LIMIT_S else 1


def report(name: str, seconds: list[float]) -> float:
    """Print one row and return its median."""
    median_s = statistics.median(seconds)
    print(f"{name:<30}{median_s:>10.2f}{min(seconds):>8.2f}{max(seconds):>8.2f}{LIMIT_S:>8.2f}")
    return median_s


def start(browser: Browser, *, with_job: bool) -> float:
    """Return the seconds from the start of the command to the picture."""
    with ExitStack() as stack:
        folder = stack.enter_context(short_folder())
        if with_job:
            stack.enter_context(running((*VRAMSCOPE, "collect", "--no-nvml"), folder=folder))
            demo = Command((*VRAMSCOPE, "demo", "--no-serve", "--small", "--steps", "5"), folder=folder)
            if demo.process.wait() != 0:
                raise SystemExit(f"the demo failed: {demo.errors}")
        page = stack.enter_context(browser.new_context(viewport={"width": 1440, "height": 900})).new_page()
        selector = PAINTED_MAP if with_job else EMPTY_PAGE
        page.add_init_script(NOTE_MOMENT % selector)
        began_unix_s = time.time()
        serve = stack.enter_context(running((*VRAMSCOPE, "serve", "--port", "0"), folder=folder))
        page.goto(serve.line("vramscope: ").removeprefix("vramscope: "), wait_until="commit")
        page.wait_for_selector(selector, timeout=60_000)
        page.wait_for_timeout(100)
        return float(page.evaluate("window.pictureUnixMs")) / 1000 - began_unix_s


if __name__ == "__main__":
    sys.exit(main())
