"""What the post-mortem page costs: the server's answers about a large trace, and the page in Chromium from opening to paint.

Run: python benchmarks/postmortem.py [FILE …] [--runs 5] [--no-browser]
Without a file it makes one of 960,000 events (half a minute). The limits are for a million events on 2 cores. The server's
openings end with the first view of the timeline, the browser's with its paint: they hold what loading the page takes.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import flask
from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dashboard import postmortem_routes
from dashboard.files import SnapshotFiles
from tests.chromium import launch
from tests.fake_live_data import FakeLiveData
from tests.server_process import serving

ROOT = Path(__file__).resolve().parent.parent
TOKEN = "benchmark-token"
TIMELINE_LIMIT_MS, MOMENT_LIMIT_MS, STACKS_LIMIT_MS, ROWS_LIMIT_MS = 40.0, 100.0, 300.0, 300.0
FIRST_LIMIT_MS, SECOND_LIMIT_MS, PAN_LIMIT_MS, JUMP_LIMIT_MS = 4000.0, 500.0, 150.0, 100.0
OPENING_S, PAINTING_S = 300, 30
DRAGS, JUMPS = 20, 20
# The page clears its measures as it makes them, so they are read as they pass.
OBSERVE = """window.paints = [];
new PerformanceObserver((list) => {
  for (const { name, startTime, duration } of list.getEntries()) window.paints.push({ name, startTime, duration });
}).observe({ entryTypes: ["measure"] });"""
PAINTS_OF = "window.paints.filter((paint) => paint.name === name)"
TIMELINE_PAINT, MOMENT_PAINT = "vramscope timeline to paint", "vramscope moment to paint"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--runs", type=int, default=5, help="measures of each answer (%(default)s)")
    parser.add_argument("--no-browser", action="store_true", help="the server's part only")
    parser.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--state", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.files[0], options.state, options.serve)
        return 0
    with tempfile.TemporaryDirectory(prefix="vs-") as name:
        files = options.files
        if not files:
            files = [Path(name, "made.pickle")]
            maker = ROOT / "benchmarks" / "snapshot_open.py"
            subprocess.run((sys.executable, str(maker), "--make", str(files[0])), check=True)
        within = [answers(file, Path(name, f"answers-{place}"), options.runs) for place, file in enumerate(files)]
        if not options.no_browser:
            within += [in_browser(file, Path(name, f"browser-{place}")) for place, file in enumerate(files)]
    return 0 if all(within) else 1


class Site:
    """The routes over one file, without a network."""

    def __init__(self, file: Path, state: Path) -> None:
        live = FakeLiveData(no_jobs=True)
        self._files = SnapshotFiles(state, live, dumps_folder=state / "dumps")
        server = flask.Flask("benchmark")
        postmortem_routes.register(server, self._files)
        self._client, self._file = server.test_client(), self._files.add_path(file)

    def get(self, path: str) -> Any:
        answer = self._client.get(f"/postmortem/files/{self._file}/{path}")
        if answer.status_code != 200:
            raise SystemExit(f"{path}: {answer.status_code} {answer.text}")
        return answer

    def device(self) -> dict[str, Any]:
        """Return what is known of the device with the longest trace."""
        devices: list[dict[str, Any]] = self.get("state.json").json["snapshot"]["devices"]
        return max(devices, key=lambda found: int(found["events"]))

    def open_and_view(self) -> None:
        """Open the file and ask for the whole timeline."""
        self._files.start(self._file)
        while self._files.state(self._file).state in ("waiting", "opening"):
            time.sleep(0.01)
        self.get(f"{self.device()['device']}/timeline.bin?width=1400")


def answers(file: Path, state: Path, runs: int) -> bool:
    """Print how long the server takes for each answer; return whether all are within their limits."""
    first, site = Site(file, state), Site(file, state)
    openings = [timed(first.open_and_view)], [timed(site.open_and_view)]
    device = site.device()
    print(f"{file.name}: {device['events']} events, {device['blocks']} blocks at the end")
    random.seed(0)
    within = [
        report("first opening to a view", openings[0], FIRST_LIMIT_MS),
        report("second opening to a view", openings[1], SECOND_LIMIT_MS),
    ]
    for name, limit_ms, paths in questions(device, runs * 4):
        within.append(report(name, [timed(partial(site.get, path)) for path in paths], limit_ms))
    return all(within)


def questions(device: dict[str, Any], count: int) -> list[tuple[str, float, list[str]]]:
    """Return what is asked about a device: the name, the limit, and the paths."""
    at, events = device["device"], device["events"]
    axis, (begin, end) = next((name, found) for name, found in device["axes"].items() if found is not None)

    def view() -> str:
        width = random.choice((1, 0.3, 0.1, 0.01, 0.001)) * (end - begin)
        start = random.uniform(begin, end - width)
        return f"{at}/timeline.bin?axis={axis}&from={start}&to={start + width}&width=1400"

    def anywhere(path: str) -> list[str]:
        return [f"{at}/{path}{random.randrange(events)}" for _ in range(count)]

    return [
        ("a view of the timeline", TIMELINE_LIMIT_MS, [view() for _ in range(count)]),
        ("the map at some event", MOMENT_LIMIT_MS, anywhere("moment.bin?event=")),
        ("stacks at some event", STACKS_LIMIT_MS, anywhere("stacks.json?event=")),
        ("stacks of all allocations", STACKS_LIMIT_MS, [f"{at}/stacks.json?at=range"] * count),
        ("a page of allocations", ROWS_LIMIT_MS, anywhere("rows.json?table=allocations&event=")),
        ("a page of events", ROWS_LIMIT_MS, anywhere("rows.json?table=events&first=")),
        ("a search by size", ROWS_LIMIT_MS, [f"{at}/search.json?q=%3E=1MiB"] * count),
    ]


def in_browser(file: Path, state: Path) -> bool:
    """Print how long the page takes from choosing a file to the picture, and while it is used; return whether within the limits."""
    with serving(__file__, ["--state", str(state), str(file)]) as address:
        first, _, _ = measure(f"{address}postmortem/?token={TOKEN}", is_used=False)
    # A new process: what it knows of the file is the columns on disk.
    with serving(__file__, ["--state", str(state), str(file)]) as address:
        second, pans, jumps = measure(f"{address}postmortem/?token={TOKEN}", is_used=True)
    rows = [
        ("first opening to picture", [first], FIRST_LIMIT_MS),
        ("second opening to picture", [second], SECOND_LIMIT_MS),
        ("pan or zoom to paint", pans, PAN_LIMIT_MS),
        ("jump to paint", jumps, JUMP_LIMIT_MS),
    ]
    return all([report(*row) for row in rows])


def measure(url: str, *, is_used: bool) -> tuple[float, list[float], list[float]]:
    """Return the milliseconds from choosing the file to the picture, and those of each pan or zoom and each jump."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.add_init_script(OBSERVE)
        page.goto(url)
        page.wait_for_selector("#file-list button")
        page.wait_for_load_state("networkidle")
        chosen = page.evaluate(
            "() => { const now = performance.now(); document.querySelector('#file-list button').click(); return now; }"
        )
        wait_for_paints(page, TIMELINE_PAINT, 1, OPENING_S)
        painted = page.evaluate(
            f"(name) => {{ const [paint] = {PAINTS_OF}; return paint.startTime + paint.duration; }}", TIMELINE_PAINT
        )
        picture = painted - chosen
        pans, jumps = ([], []) if not is_used else (panned(page), jumped(page))
        browser.close()
    return float(picture), pans, jumps


def panned(page: Page) -> list[float]:
    """Zoom and drag the timeline; return what the page measured of it."""
    box = page.locator("#memory-graph .nsewdrag").first.bounding_box()
    assert box is not None
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    known = len(paints(page, TIMELINE_PAINT))
    for number in range(DRAGS):
        page.mouse.move(*middle)
        if number % 4 == 0:
            page.keyboard.down("Control")
            page.mouse.wheel(0, -240)
            page.keyboard.up("Control")
        else:
            page.mouse.down()
            page.mouse.move(middle[0] + (60 if number % 2 else -60), middle[1], steps=4)
            page.mouse.up()
        wait_for_paints(page, TIMELINE_PAINT, known + 1, PAINTING_S)
        known = len(paints(page, TIMELINE_PAINT))
    return paints(page, TIMELINE_PAINT)[1:]


def jumped(page: Page) -> list[float]:
    """Step back and jump to the peak, where the page begins, in turn; return what the page measured of the map's paint."""
    known = len(paints(page, MOMENT_PAINT))
    for number in range(JUMPS):
        page.click("#step-back" if number % 2 == 0 else "#to-peak")
        wait_for_paints(page, MOMENT_PAINT, known + 1, PAINTING_S)
        known = len(paints(page, MOMENT_PAINT))
    return paints(page, MOMENT_PAINT)[1:]


def paints(page: Page, name: str) -> list[float]:
    found: list[float] = page.evaluate(f"(name) => {PAINTS_OF}.map((paint) => paint.duration)", name)
    return found


def wait_for_paints(page: Page, name: str, count: int, within_s: float) -> None:
    page.wait_for_function(
        f"([name, count]) => {PAINTS_OF}.length >= count",
        arg=[name, count],
        timeout=within_s * 1000,
    )


def serve(file: Path, state: Path, port: int) -> None:
    """Serve the page with ``file`` registered; runs in a process of its own."""
    import waitress

    from app import AppSettings, create_app

    live = FakeLiveData(no_jobs=True)
    files = SnapshotFiles(state, live, dumps_folder=state / "dumps")
    files.add_path(file)
    app = create_app(live, AppSettings(TOKEN, state / "dumps", state), files)
    waitress.serve(app.server, host="127.0.0.1", port=port, threads=8, _quiet=True)


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def report(name: str, found_ms: Sequence[float], limit_ms: float) -> bool:
    """Print the median and the 95th percentile against the limit; return whether it is kept."""
    p95 = statistics.quantiles(found_ms, n=20)[-1] if len(found_ms) > 1 else found_ms[0]
    print(f"  {name:<28} p50 {statistics.median(found_ms):7.1f} ms   p95 {p95:7.1f} ms   limit {limit_ms:6.0f} ms")
    return p95 <= limit_ms


if __name__ == "__main__":
    sys.exit(main())
