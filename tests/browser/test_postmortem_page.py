"""The Post-mortem page, as somebody with a snapshot of a job that ran out of memory meets it."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE_MS, Open, Serve
from tests.fake_live_data import FakeLiveData
from vramscope.units import format_bytes

expect.set_options(timeout=PATIENCE_MS)

MIB = 1 << 20
HOSTILE = "<img src=x onerror=alert(1)>"
BASE = 0x7F00_0000_0000

OOM_TEXT = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.15 GiB of which "
    "17.38 MiB is free. Process 123 has 79.13 GiB memory in use. Of the allocated memory 77.21 GiB is allocated by PyTorch, and "
    "1.05 GiB is reserved by PyTorch but unallocated."
)


def frames(function: str) -> list[dict[str, Any]]:
    return [{"filename": "/home/user/train.py", "line": 12, "name": function}]


def event(action: str, number: int, address: int, size: int, function: str) -> dict[str, Any]:
    return {
        "action": action,
        "addr": address,
        "size": size,
        "stream": 0,
        "time_us": 1_700_000_000_000_000 + number * 1000,
        "frames": frames(function),
    }


def snapshot(*, oom: bool = False) -> dict[str, Any]:
    """Return a snapshot of one segment of 80 MiB, where blocks of 20 MiB came and went; the peak of 60 MiB is event 3."""
    size, addresses = 20 * MIB, [BASE + n * 20 * MIB for n in range(4)]
    events = [
        event("segment_alloc", 0, BASE, 4 * size, "load"),
        event("alloc", 1, addresses[0], size, "load"),
        event("alloc", 2, addresses[1], size, "forward"),
        event("alloc", 3, addresses[2], size, HOSTILE),
        event("free_requested", 4, addresses[2], size, HOSTILE),
        event("free_completed", 5, addresses[2], size, HOSTILE),
        event("free_requested", 6, addresses[1], size, "forward"),
        event("free_completed", 7, addresses[1], size, "forward"),
    ]
    if oom:
        failed = event("oom", 8, 0, 512 * MIB, "forward")
        failed["device_free"] = failed.pop("addr") + 3 * MIB
        events.append(failed)
    blocks = [
        {"address": BASE, "size": size, "requested_size": size, "state": "active_allocated", "frames": frames("load")},
        {"address": addresses[1], "size": 3 * size, "requested_size": 0, "state": "inactive", "frames": []},
    ]
    segment = {
        "device": 0,
        "address": BASE,
        "total_size": 4 * size,
        "allocated_size": size,
        "active_size": size,
        "requested_size": size,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": frames("load"),
        "blocks": blocks,
    }
    return {"segments": [segment], "device_traces": [events], "allocator_settings": {}}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a snapshot as PyTorch does; returns its path."""

    def to_file(found: dict[str, Any] | None = None, name: str = "job.pickle") -> Path:
        path = tmp_path / name
        path.write_bytes(pickle.dumps(found or snapshot()))
        return path

    return to_file


def postmortem(url: str, query: str = "") -> str:
    return url.replace("/?", f"/postmortem/?{query}&" if query else "/postmortem/?")


@pytest.fixture
def page(serve: Serve, open_page: Open) -> Page:
    """The page without a file."""
    found = open_page(postmortem(serve(FakeLiveData(no_jobs=True))), wait=False)
    found.wait_for_selector("#file-chosen", state="attached")
    return found


def choose(page: Page, path: Path) -> None:
    """Choose a file, and wait for its pictures."""
    page.set_input_files("#file-chosen", str(path))
    page.wait_for_selector("#memory[data-painted]")
    page.wait_for_selector("#map[data-painted]")


def painted_pixels(page: Page, canvas: str) -> int:
    found = page.evaluate(
        """(id) => {
          const canvas = document.getElementById(id);
          const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          let count = 0;
          for (let i = 3; i < data.length; i += 4) if (data[i] > 0) count += 1;
          return count;
        }""",
        canvas,
    )
    assert isinstance(found, int)
    return found


def click_timeline(page: Page, share_x: float, share_y: float) -> None:
    box = page.locator("#memory .nsewdrag").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * share_x, box["y"] + box["height"] * share_y)


def test_a_chosen_file_becomes_pictures_at_its_peak(page: Page, write: Callable[..., Path]) -> None:
    # GIVEN a page that teaches how to come by a snapshot
    expect(page.locator("#opener")).to_contain_text("_record_memory_history")
    # WHEN a file is chosen
    choose(page, write())
    # THEN timeline and map are painted, and the map is that of the peak
    assert painted_pixels(page, "memory-canvas") > 5000
    assert painted_pixels(page, "map-canvas") > 5000
    expect(page.locator("#moment-event")).to_contain_text("4 of 8")
    expect(page.locator("#memory-summary")).to_contain_text("60.0 MiB")
    expect(page.locator("#opener")).to_be_hidden()


def test_steps_from_event_to_event_with_buttons_and_keys(page: Page, write: Callable[..., Path]) -> None:
    choose(page, write())
    event = page.locator("#moment-event")
    page.click("#step-on")
    expect(event).to_contain_text("5 of 8")
    page.keyboard.press("[")
    expect(event).to_contain_text("4 of 8")
    page.keyboard.press("[")
    expect(event).to_contain_text("3 of 8")
    # WHEN somebody asks for the peak
    page.click("#to-peak")
    # THEN the cursor is there
    expect(event).to_contain_text("4 of 8")
    expect(event).to_contain_text("20.0 MiB")


def test_a_click_on_a_band_selects_it_and_moves_the_cursor(page: Page, write: Callable[..., Path]) -> None:
    # GIVEN a trace of 7 ms, of which the first allocation holds the lowest third from 1 ms on
    choose(page, write())
    # WHEN it is clicked at 3.5 ms
    click_timeline(page, 0.5, 0.9)
    # THEN its facts and its stack show, and the cursor is at the event before
    expect(page.locator("#details")).to_contain_text("20,971,520 B")
    expect(page.locator("#details")).to_contain_text(f"{BASE:#x}")
    expect(page.locator("#details-stack")).to_contain_text("load")
    expect(page.locator("#moment-event")).to_contain_text("4 of 8")
    # AND the link leads to the same
    page.wait_for_url(re.compile("allocation=0"))


PAINT = """() => {
  const frame = {header: {from: 0, to: 4, width: 4}, start: [0, 1, 2], end: [4, 3, 4], bytes: [40, 20, 10],
    rest: [0, 0, 10, 20], allocation: [7, 8, 9]};
  const colours = {of: (_, k) => k + 1, separator: 90, mark: 91, restLight: 80, restDark: 80};
  const [pixels, ids] = [new Uint32Array(40), new Int32Array(40)];
  vramscope.memoryFrame.paint(frame, {from: 0, to: 4, top: 100}, pixels, ids, 4, 10, colours, new Set([9]));
  const upwards = (values, x) => Array.from({length: 10}, (_, y) => values[(9 - y) * 4 + x]);
  return [0, 1, 2, 3].map((x) => [upwards(pixels, x), upwards(ids, x)]);
}"""


def test_each_column_of_pixels_is_as_high_as_its_bytes(page: Page) -> None:
    # GIVEN three allocations of 40, 20 and 10 bytes, the last one marked, a rest, and 10 bytes a pixel
    block, nothing = [1, 1, 1, 90], [-1, -1, -1]
    assert page.evaluate(PAINT) == [
        [[*block, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, *nothing, *nothing]],
        [[*block, 2, 2, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, -1, *nothing]],
        [[*block, 2, 2, 91, 80, 0, 0], [0, 0, 0, 0, 1, 1, 2, *nothing]],
        [[*block, 91, 80, 80, 0, 0, 0], [0, 0, 0, 0, 2, -1, -1, *nothing]],
    ]


def test_keys_and_a_drag_move_the_range_within_the_trace(page: Page, write: Callable[..., Path]) -> None:
    # GIVEN the whole trace, over time
    choose(page, write())

    def range_of() -> tuple[float, float]:
        begin, end = page.evaluate("(({ view }) => [view.from, view.to])(vramscope.memoryTimeline.state())")
        return begin, end

    begin, end = range_of()
    width = (end - begin) / 2

    # WHEN it is zoomed to the half in the middle and moved by a quarter of that
    page.locator("#memory").focus()
    page.keyboard.press("+")
    assert range_of() == pytest.approx((begin + width / 2, end - width / 2), abs=2)
    page.keyboard.press("ArrowRight")
    assert range_of() == pytest.approx((begin + width * 0.75, end - width * 0.25), abs=2)
    # AND pulled to the right by a tenth
    box = page.locator("#memory .nsewdrag").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + box["width"] / 20, y)
    page.mouse.move(x + box["width"] / 10, y)
    page.mouse.up()
    # THEN what is seen lies a tenth earlier
    page.wait_for_function(f"vramscope.memoryTimeline.state().view.from < {begin + width * 0.74}")
    assert range_of()[0] == pytest.approx(begin + width * 0.65, abs=width / 50)
    # AND nothing lies outside of the trace
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    assert range_of() == pytest.approx((begin + width, end), abs=2)
    page.keyboard.press("0")
    assert range_of() == (begin, end)


def test_a_link_leads_to_the_same_view(serve: Serve, open_page: Open, write: Callable[..., Path]) -> None:
    # GIVEN a view: a moment, an allocation, another axis, another colour, another tab
    url = serve(FakeLiveData(no_jobs=True))
    page = open_page(postmortem(url), wait=False)
    page.wait_for_selector("#file-chosen", state="attached")
    choose(page, write())
    page.locator("#memory-axis label", has_text="Events").click()
    page.locator("#memory-colour label", has_text="Size").click()
    page.locator("#tab label", has_text="Largest").click()
    click_timeline(page, 0.5, 0.9)
    page.wait_for_url(re.compile("allocation=0"))
    page.wait_for_url(re.compile("axis=step"))
    chosen = page.url.partition("?")[2]
    moment = page.locator("#moment-event").text_content()
    # WHEN a colleague opens it
    other = open_page(postmortem(url, chosen), wait=False)
    # THEN all of it is there again
    expect(other.locator("#moment-event")).to_have_text(moment or "")
    expect(other.locator("#details-stack")).to_contain_text("load")
    expect(other.locator("#memory-axis label", has_text="Events").locator("input")).to_be_checked()
    expect(other.locator("#memory-colour label", has_text="Size").locator("input")).to_be_checked()
    expect(other.locator("#allocations-grid .ag-row").first).to_contain_text("20.0 MiB")
    other.wait_for_url(re.compile("allocation=0"))


def test_a_file_that_is_no_snapshot_is_one_line(page: Page, write: Callable[..., Path], tmp_path: Path) -> None:
    # WHEN something else is chosen
    path = tmp_path / "weights.pickle"
    path.write_bytes(pickle.dumps({"layer.weight": [1, 2, 3]}))
    page.set_input_files("#file-chosen", str(path))
    # THEN one line says so, and the page still takes a file
    line = page.locator("#opening-error")
    expect(line).to_be_visible()
    assert "\n" not in (line.text_content() or "").strip()
    assert "Traceback" not in (line.text_content() or "")
    choose(page, write())


def test_an_out_of_memory_stands_over_everything(page: Page, write: Callable[..., Path]) -> None:
    # GIVEN a job that asked for 512 MiB and failed
    choose(page, write(snapshot(oom=True)))
    # THEN the page opens there and says what was asked and what the largest hole was
    expect(page.locator("#oom")).to_be_visible()
    expect(page.locator("#oom-facts")).to_contain_text("Asked for 512.0 MiB")
    expect(page.locator("#oom-facts")).to_contain_text("60.0 MiB")
    expect(page.locator("#moment-event")).to_contain_text("9 of 9")
    # AND one click leads back to it
    page.click("#to-peak")
    expect(page.locator("#moment-event")).to_contain_text("4 of 9")
    page.click("#oom-show")
    expect(page.locator("#moment-event")).to_contain_text("9 of 9")


def test_another_out_of_memory_of_the_file_is_shown_at_its_moment(page: Page, write: Callable[..., Path]) -> None:
    # GIVEN a job that caught an out-of-memory, and met another
    found = snapshot(oom=True)
    again = event("oom", 9, 0, 256 * MIB, "backward")
    again["device_free"] = again.pop("addr") + 3 * MIB
    found["device_traces"][0].append(again)
    choose(page, write(found))
    expect(page.locator("#oom-facts")).to_contain_text("Asked for 512.0 MiB")
    expect(page.locator("#moment-event")).to_contain_text("9 of 10")
    # WHEN the other is chosen
    page.click("#oom-picker")
    page.locator(".dash-dropdown-content label", has_text="2 of 2: 256.0 MiB at event 9").click()
    # THEN its facts show, and the map is that of its moment
    expect(page.locator("#oom-facts")).to_contain_text("Asked for 256.0 MiB")
    expect(page.locator("#moment-event")).to_contain_text("after event 9 (10 of 10")


def test_what_is_too_much_to_be_drawn_is_counted(page: Page, write: Callable[..., Path]) -> None:
    # GIVEN a job that ran out of memory 60 times, and left 500 more marks
    found = snapshot(oom=True)
    trace = found["device_traces"][0]
    trace += [{**trace[-1], "time_us": trace[-1]["time_us"] + number} for number in range(1, 60)]
    trace += [event("snapshot", 20 + number, 0, 0, "main") for number in range(500)]

    # WHEN
    choose(page, write(found))

    # THEN peak, out-of-memories and snapshots are more than the 500 marks and 50 out-of-memories that a view carries
    expect(page.locator("#memory-summary")).to_contain_text("61 marks not drawn")
    expect(page.locator("#oom-picker")).to_contain_text("1 of 60")


def test_tables_show_rows_of_the_server_and_a_row_leads_to_its_event(page: Page, write: Callable[..., Path]) -> None:
    choose(page, write())
    # WHEN the events are shown and one is chosen
    page.locator("#tab label", has_text="Events").last.click()
    rows = page.locator("#events-grid .ag-row")
    expect(rows).to_have_count(8)
    rows.nth(1).click()
    # THEN the cursor is there
    expect(page.locator("#moment-event")).to_contain_text("2 of 8")
    # AND the tab of settings tells the totals
    page.locator("#tab label", has_text="Settings").click()
    expect(page.locator("#settings")).to_contain_text("83,886,080 B")
    # AND names of the job are text, whatever they hold
    assert page.locator("img").count() == 0


def test_search_finds_an_allocation_by_its_address(page: Page, write: Callable[..., Path]) -> None:
    choose(page, write())
    page.locator("#search").fill(f"{BASE + 20 * MIB + 5:#x}")
    page.locator("#search-hits button").first.click()
    expect(page.locator("#details")).to_contain_text(f"{BASE + 20 * MIB:#x}")


def test_without_a_history_the_final_state_is_still_shown(page: Page, write: Callable[..., Path]) -> None:
    # GIVEN a file that was written without recording
    found = snapshot()
    found["device_traces"] = [[]]
    page.set_input_files("#file-chosen", str(write(found)))
    # THEN the page says so once, where the timeline would be, and shows the blocks
    page.wait_for_selector("#map[data-painted]")
    expect(page.locator("#memory-none")).to_contain_text("no history")
    expect(page.locator("#messages")).to_be_empty()
    expect(page.locator("#map-summary")).to_contain_text("1 segment · 2 blocks")
    assert painted_pixels(page, "map-canvas") > 5000


def test_a_pasted_message_is_read_in_bytes(page: Page) -> None:
    # WHEN an out-of-memory message is pasted
    page.fill("#paste", OOM_TEXT)
    page.click("#paste-read")
    # THEN its sizes stand there in bytes, with what the rounding leaves open
    expect(page.locator("#paste-found")).to_contain_text("20,971,520")
    expect(page.locator("#paste-found")).to_contain_text("out of memory")
    # AND what is none is said to be none
    page.fill("#paste", "everything is fine")
    page.click("#paste-read")
    expect(page.locator("#paste-found")).to_contain_text("No out-of-memory message")


def test_a_phone_shows_it_without_scrolling_sideways(serve: Serve, open_page: Open, write: Callable[..., Path]) -> None:
    page = open_page(postmortem(serve(FakeLiveData(no_jobs=True))), width=390, height=844, wait=False)
    page.wait_for_selector("#file-chosen", state="attached")
    choose(page, write())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_json_snapshot_opens_as_well(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(snapshot()))
    choose(page, path)
    expect(page.locator("#memory-summary")).to_contain_text("60.0 MiB")


def test_of_a_gpu_that_was_not_used_no_history_is_asked_for(page: Page, write: Callable[..., Path]) -> None:
    # GIVEN a file that knows of a second GPU, which was not used
    found = snapshot()
    found["device_traces"].append([])
    choose(page, write(found))
    # WHEN it is looked at
    page.locator("#gpu label", has_text="1").click()
    # THEN the page says that there is nothing, and not that recording would help
    expect(page.locator("#memory-none")).to_contain_text("nothing of this GPU")
    expect(page.locator("#memory-none")).not_to_contain_text("_record_memory_history")


def test_a_file_that_contradicts_itself_shows_why_in_the_place_of_map_stacks_and_tables(
    page: Page, write: Callable[..., Path]
) -> None:
    # GIVEN a segment whose blocks do not fill it
    found = snapshot()
    found["segments"][0]["blocks"][1]["size"] -= MIB
    # WHEN it is opened
    page.set_input_files("#file-chosen", str(write(found)))
    # THEN one sentence says so, and it does not ask for a history that is there
    line = page.locator("#memory-none")
    expect(line).to_contain_text("contradicts itself: the file's blocks do not fill their segments.")
    expect(line).not_to_contain_text("_record_memory_history")
    expect(page.locator("#messages")).to_be_empty()
    for drawn in (".moment", "#stacks-panel", "#memory"):
        expect(page.locator(drawn)).to_be_hidden()
    page.locator("#tab label", has_text="Events").click()
    expect(page.locator("#tab-none")).to_contain_text("contradicts itself")
    # AND what the file states can still be read, and another file can be opened
    page.locator("#tab label", has_text="Settings").click()
    expect(page.locator("#settings")).to_contain_text("blocks do not fill their segments")
    page.locator("#tab label", has_text="Stacks").click()
    page.set_input_files("#file-chosen", str(write(name="good.pickle")))
    page.wait_for_selector("#map[data-painted]")
    expect(page.locator("#stacks-panel")).to_be_visible()
    expect(page.locator("#stacks-note")).to_contain_text("60.0 MiB in 3 allocations")


def test_stacks_of_the_view_follow_the_view(page: Page, write: Callable[..., Path]) -> None:
    # GIVEN the stacks of what was allocated over the whole trace
    choose(page, write())
    page.locator("#stacks-at label", has_text="Allocated in view").click()
    note = page.locator("#stacks-note")
    expect(note).to_contain_text("60.0 MiB in 3 allocations, allocated before the trace or in it up to event 7")
    # WHEN the view is moved to the end, where little was allocated
    page.locator("#memory").press("+")
    page.locator("#memory").press("ArrowRight")
    page.locator("#memory").press("ArrowRight")
    # THEN the stacks are those of that range
    expect(note).not_to_contain_text("3 allocations")
    # AND those of the whole again
    page.click("#show-whole")
    expect(note).to_contain_text("3 allocations")


def test_the_page_is_as_high_as_the_window(page: Page, write: Callable[..., Path]) -> None:
    choose(page, write(snapshot(oom=True)))
    assert page.evaluate("document.documentElement.scrollHeight") == page.viewport_size["height"]  # type: ignore[index]


def test_sizes_read_the_same_from_the_page_and_from_the_server(page: Page) -> None:
    for size in (
        0,
        1023,
        1024,
        91 * MIB + MIB // 4,
        91 * MIB + 3 * MIB // 4,
        5 * MIB + MIB // 8,
        10 * MIB,
        81 << 30,
        3 << 40,
    ):
        assert page.evaluate(f"vramscope.mapWords.formatBytes({size})") == format_bytes(size)
