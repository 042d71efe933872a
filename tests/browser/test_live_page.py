"""The Live page, as somebody who looks at it meets it."""

from __future__ import annotations

import csv
import re
import struct
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE_MS, Open, Serve, Served
from tests.fake_live_data import FakeLiveData
from vramscope.records import JobInfo

expect.set_options(timeout=PATIENCE_MS)

HOSTILE = "<img src=x onerror=alert(1)>"

# How many pixels of the canvas have each of the given colours (CSS variables).
COUNT_COLOURS = """(names) => {
  const canvas = document.getElementById("map-canvas");
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const wanted = names.map((name) => vramscope.theme.colour(name).match(/[\\d.]+/g).slice(0, 3).join());
  const counts = names.map(() => 0);
  for (let i = 0; i < data.length; i += 4) {
    const at = wanted.indexOf(`${data[i]},${data[i + 1]},${data[i + 2]}`);
    if (at >= 0) counts[at] += 1;
  }
  return counts;
}"""


def middle_of_map(page: Page, share_x: float = 0.5, share_y: float = 0.5) -> tuple[float, float]:
    box = page.locator("#map .nsewdrag").bounding_box()
    assert box is not None
    return box["x"] + box["width"] * share_x, box["y"] + box["height"] * share_y


def test_says_how_much_is_free_what_fits_and_what_holds_most(serve: Serve, open_page: Open) -> None:
    # GIVEN a job on an 80 GiB GPU
    page = open_page(serve(FakeLiveData()))
    # THEN the six figures, the free memory, the verdict on 2 GiB and the largest category stand on the page
    expect(page.locator("#card-active")).to_contain_text("free on the GPU")
    expect(page.locator("#card-reserved .value")).to_have_text("72.0")
    expect(page.locator("#card-largest-fit")).to_contain_text(re.compile("a 2 GiB tensor (fits|would fail)"))
    expect(page.locator("#device-parts")).to_contain_text("free on the device")
    expect(page.locator("#owner-parts")).to_contain_text("activation")
    expect(page.locator("#owner-grid .ag-row").first).to_be_visible()
    expect(page.locator("#light-text")).to_have_text("live")


def test_another_size_changes_the_verdict(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(FakeLiveData()))
    # WHEN somebody asks about one byte, and then about a terabyte
    page.fill("#fit-size", "1 B")
    page.press("#fit-size", "Enter")
    # THEN the page answers each
    expect(page.locator("#card-largest-fit")).to_contain_text("a 1 B tensor fits")
    page.fill("#fit-size", "900 GiB")
    page.press("#fit-size", "Enter")
    expect(page.locator("#card-largest-fit")).to_contain_text("would fail")


def test_explains_a_figure_to_the_keyboard_too(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(FakeLiveData()))
    hint = page.locator(".figure:has(#card-inactive-split)")
    expect(hint.locator(".hint-text")).not_to_be_visible()
    # WHEN the hint has the focus of the keyboard
    hint.locator(".hint").focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    # THEN its explanation with the formula shows, and a reader gets the same words
    expect(hint.locator(".hint-text")).to_be_visible()
    assert "inactive split / reserved" in (hint.locator(".hint").get_attribute("aria-label") or "")


def test_the_pickers_change_what_is_shown_and_the_url_keeps_it(serve: Serve, open_page: Open) -> None:
    # GIVEN a job of four ranks with two GPUs each
    page = open_page(serve(FakeLiveData(ranks=4, devices=2)))
    # WHEN rank 2 and GPU 1 are picked
    page.locator("#rank label", has_text="2").click()
    expect(page.locator("#rank label", has_text="2").locator("input")).to_be_checked()
    page.locator("#gpu label", has_text="1").click()
    # THEN the page shows GPU 1, and a reload shows the same
    expect(page.locator("#device-name")).to_contain_text("GPU 1")
    page.wait_for_url(re.compile(r"rank=2&gpu=1"))
    page.reload()
    expect(page.locator("#device-name")).to_contain_text("GPU 1")
    expect(page.locator("#rank label", has_text="2").locator("input")).to_be_checked()


def test_a_pick_is_not_lost_to_a_tick_on_a_slow_machine(
    serve: Serve, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a dashboard that takes most of a second to answer, so that a tick comes before the answer to nearly every pick
    live = FakeLiveData(ranks=4)
    page = open_page(serve(live))
    answer = live.jobs

    def jobs() -> Sequence[JobInfo]:
        time.sleep(0.7)
        return answer()

    monkeypatch.setattr(live, "jobs", jobs)
    # THEN each is followed
    for rank in ("2", "1", "3"):
        page.locator("#rank label", has_text=rank).click()
        page.wait_for_url(re.compile(f"rank={rank}"))


def test_many_ranks_get_a_menu(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(FakeLiveData(ranks=16)))
    expect(page.locator("#rank-menu")).to_be_visible()
    expect(page.locator("#rank")).not_to_be_visible()


def test_colours_by_state_or_by_owner(serve: Serve, open_page: Open) -> None:
    # GIVEN the map in the colours of states
    page = open_page(serve(FakeLiveData()))
    active, _, activation = page.evaluate(COUNT_COLOURS, ["--s-active", "--s-inactive", "--o-5"])
    assert active > 1000
    assert activation == 0
    # WHEN it is coloured by owner
    page.locator("#map-colour label", has_text="Owner").click()
    page.wait_for_function(f"() => ({COUNT_COLOURS})(['--s-active', '--o-5'])[1] > 1000")
    # THEN no state's colour is left for active blocks, and the legend names the owners
    assert page.evaluate(COUNT_COLOURS, ["--s-active"]) == [0]
    expect(page.locator("#map-legend")).to_contain_text("optimizer state")


def test_hover_tells_a_block_and_click_selects_it(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(FakeLiveData(updates_per_s=0.001)))
    x, y = middle_of_map(page, 0.3, 0.4)
    # WHEN the pointer rests on a block
    page.mouse.move(x, y)
    # THEN the tooltip gives its address
    expect(page.locator("#map-tip")).to_contain_text("0x7f")
    address = page.locator("#map-tip span").first.inner_text()
    # WHEN it is clicked
    page.mouse.click(x, y)
    # THEN the right column shows the same block, and its stack or why there is none
    expect(page.locator("#block-facts dd").first).to_have_text(address)
    expect(page.locator("#block-stack")).to_contain_text(re.compile("train.py:88 main|history recording is off"))


def test_the_keyboard_moves_selects_and_clears(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(FakeLiveData(updates_per_s=0.001)))
    # WHEN arrows move over the map
    page.focus("#map")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#map-aloud")).to_contain_text("block of")
    first = page.locator("#map-aloud").inner_text()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    # THEN another block is announced; Enter selects it and Escape clears
    expect(page.locator("#map-aloud")).not_to_have_text(first)
    page.keyboard.press("Enter")
    expect(page.locator("#block-facts dl")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#block-facts")).to_contain_text("Click a block")


def test_the_script_reads_every_block_as_python_wrote_it(serve: Serve, open_page: Open) -> None:
    # GIVEN a map with cut rows and shortened gaps
    live = FakeLiveData(blocks=900, expandable=True, updates_per_s=0.001)
    page = open_page(serve(live))
    found = live.device_map("job-1", 0, 0)
    assert found is not None
    # WHEN the script takes the frame apart, and looks each block up by its address
    blocks = page.evaluate("""async () => {
      const { parse, block, pieceAt } = vramscope.raster;
      const picture = parse(await (await fetch("live/blocks.bin?job=job-1&device=0&rank=0")).arrayBuffer());
      const found = [];
      for (let i = 0; i < picture.pieceState.length; i++) {
        const { first, address, bytes, state } = block(picture, i);
        if (first === i && state !== 3) found.push([address, bytes, block(picture, pieceAt(picture, address)).address]);
      }
      return found;
    }""")
    # THEN they are the blocks of the map
    read = sorted((address, size) for address, size, _ in blocks)
    assert read == list(zip(found.block_address.tolist(), found.block_bytes.tolist(), strict=True))
    assert all(address == again for address, _, again in blocks)


def test_a_row_of_the_table_selects_its_block_in_the_map(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(FakeLiveData(updates_per_s=0.001)))
    row = page.locator("#owner-grid .ag-center-cols-container .ag-row", has_text="layers.").first
    name = row.locator("[col-id=name]").inner_text()
    row.click()
    expect(page.locator("#block-facts")).to_contain_text(name)


def test_the_map_can_be_sorted_filtered_and_read_as_a_table(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(FakeLiveData()))
    # WHEN the map is sorted by address and shown as a table
    page.locator("#map-view label", has_text="Table").click()
    page.locator("#map-sort label", has_text="Address").click()
    rows = "[...document.querySelectorAll('#map-table tbody tr')].map((row) => parseInt(row.cells[0].textContent, 16))"
    # THEN the addresses ascend
    page.wait_for_function(
        f"() => {{ const a = {rows}; return a.length > 9 && a.every((v, i) => !i || a[i - 1] < v); }}"
    )
    # AND small pools alone are fewer
    page.locator("#map-pool label", has_text="Small").click()
    page.wait_for_function(
        "() => [...document.querySelectorAll('#map-table tbody tr')].every((row) => row.cells[7].textContent.startsWith('small'))"
    )


def test_dragging_moves_the_map_and_home_shows_it_all_again(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(FakeLiveData(blocks=20_000)))
    x, y = middle_of_map(page)
    lines = page.locator("#map-lines")
    expect(lines).to_contain_text(re.compile(r"^1–"))
    whole = lines.inner_text()
    # WHEN the map is dragged upwards
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y - 60, steps=5)
    page.mouse.up()
    # THEN it shows later lines, and the button "reset axes" goes back
    expect(lines).not_to_contain_text(re.compile(r"^1–"))
    page.hover("#map")
    page.locator("#map-graph [data-val=reset]").click()
    expect(lines).to_have_text(whole)


def test_pause_freezes_the_page_until_it_is_resumed(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(FakeLiveData()))
    # WHEN the page is paused
    page.click("#pause")
    expect(page.locator("#light-text")).to_have_text("paused")
    expect(page.locator("#pause")).to_have_text("Resume")
    page.wait_for_timeout(1500)  # requests under way may still arrive
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    frozen = page.evaluate(COUNT_COLOURS, ["--s-active", "--s-inactive"])
    figure = page.locator("#card-active").inner_text()
    page.wait_for_timeout(2500)
    # THEN it asks for nothing and changes nothing
    assert asked == []
    assert page.evaluate(COUNT_COLOURS, ["--s-active", "--s-inactive"]) == frozen
    assert page.locator("#card-active").inner_text() == figure
    # AND it goes on when resumed
    page.click("#pause")
    expect(page.locator("#light-text")).to_have_text("live")
    page.wait_for_function(
        f"() => ({COUNT_COLOURS})(['--s-active', '--s-inactive']).join() !== '{','.join(map(str, frozen))}'"
    )


def test_a_snapshot_is_written_listed_and_offered(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(FakeLiveData()))
    page.click("#dump")
    expect(page.locator("#dump-message")).to_contain_text("wrote vramscope-fake-0.pickle (12.1 KiB)")
    opens, downloads = page.locator("#dump-list a").all()
    expect(opens).to_have_attribute("href", re.compile(r"/postmortem/\?file=[0-9a-f]{16}$"))
    expect(downloads).to_have_attribute("href", "/dumps/dump-0")
    page.click("#dump-close")
    expect(page.locator("#dump-panel")).not_to_be_visible()
    # AND the list can be seen again without another snapshot
    page.click("#dumps")
    expect(page.locator("#dump-list li")).to_have_count(1)
    expect(page.locator("#dump-message")).to_be_empty()


def test_escape_closes_the_snapshots_and_an_explanation(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(FakeLiveData()))
    # WHEN the list is opened by the keyboard, THEN it has the focus, and Escape gives it back
    page.focus("#dump")
    page.keyboard.press("Enter")
    expect(page.locator("#dump-panel")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("#dump-close")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#dump-panel")).not_to_be_visible()
    expect(page.locator("#dump")).to_be_focused()
    # AND an explanation that the focus has brought up goes
    hint = page.locator(".figure:has(#card-active)")
    hint.locator(".hint").focus()
    expect(hint.locator(".hint-text")).to_be_visible()
    page.keyboard.press("Escape")
    expect(hint.locator(".hint-text")).not_to_be_visible()


def test_tab_passes_the_table_of_owners_in_a_few_steps(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(FakeLiveData()))
    # GIVEN the focus on a cell of the table
    page.locator("#owner-grid .ag-row [col-id=name]").first.click()
    inside = "document.activeElement.closest('#owner-grid') !== null"
    assert page.evaluate(inside)
    # WHEN Tab is pressed once, THEN the focus leaves it
    page.keyboard.press("Tab")
    assert not page.evaluate(inside)


def test_only_what_changes_seldom_is_read_aloud(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(FakeLiveData()))
    expect(page.locator("#light-rate")).to_contain_text("Hz")
    # THEN the rate, which is another every second, is in no live region
    assert page.evaluate("document.getElementById('light-rate').closest('[role=status], [aria-live]') === null")
    assert page.locator("#light-text").get_attribute("role") == "status"


def test_without_a_job_the_page_teaches_and_then_picks_one_up(serve: Serve, open_page: Open) -> None:
    live = FakeLiveData(no_jobs=True)
    page = open_page(serve(live), wait=False)
    expect(page.locator("#empty")).to_contain_text("import vramscope; vramscope.attach(model, optimizer)")
    expect(page.locator("#empty")).to_contain_text("vramscope demo")
    expect(page.locator("#picture")).not_to_be_visible()
    # WHEN a job appears
    live.no_jobs = False
    # THEN it is shown without a reload
    page.wait_for_selector("#picture[data-painted]")
    expect(page.locator("#empty")).not_to_be_visible()


def test_a_rank_without_a_gpu_shows_no_figures_of_another(serve: Serve, open_page: Open) -> None:
    live = FakeLiveData()
    page = open_page(serve(live))
    expect(page.locator("#card-active .value")).not_to_have_text("–")
    # WHEN what is shown has no GPU, as before CUDA is initialised
    live.devices = 0
    # THEN nothing of what was there stands for it
    expect(page.locator("#banners")).to_contain_text("has not used a GPU yet")
    expect(page.locator("#card-active .value")).to_have_text("–")
    expect(page.locator("#map-summary")).to_have_text("no map has arrived yet")
    expect(page.locator("#timeline-note")).to_have_text("no samples yet")
    # AND it is shown once it is there
    live.devices = 1
    expect(page.locator("#card-active .value")).not_to_have_text("–")


def test_a_job_that_ends_stays_and_is_marked(serve: Serve, open_page: Open) -> None:
    live = FakeLiveData(simulated=True)
    page = open_page(serve(live))
    expect(page.locator("#simulated")).to_be_visible()
    live.ended = True
    expect(page.locator("#light-text")).to_have_text("ended")
    expect(page.locator("#banners")).to_contain_text("This job ended at")
    expect(page.locator("#map-summary")).to_contain_text("as of")
    assert page.evaluate(COUNT_COLOURS, ["--s-active"])[0] > 1000
    # AND a snapshot cannot be had any more, which is said
    page.click("#dump")
    expect(page.locator("#dump-message")).to_contain_text("the job has ended")


def test_a_collector_that_goes_leaves_the_picture_and_may_come_back(serve: Serve, open_page: Open) -> None:
    live = FakeLiveData()
    page = open_page(serve(live))
    live.connected = False
    expect(page.locator("#light-text")).to_contain_text("not reachable")
    expect(page.locator("#banners")).to_contain_text("The collector is not reachable")
    assert page.evaluate(COUNT_COLOURS, ["--s-active"])[0] > 1000
    live.connected = True
    expect(page.locator("#light-text")).to_have_text("live")
    expect(page.locator("#banners")).not_to_contain_text("not reachable")


def test_a_dashboard_that_goes_and_comes_back_is_found_again(open_page: Open, tmp_path: Path) -> None:
    live = FakeLiveData()
    served = Served(live, tmp_path)
    page = open_page(served.url, offline_errors=True)
    # WHEN the dashboard's process goes away
    served.close()
    # THEN the page says so and keeps its picture
    expect(page.locator("#server-gone")).to_contain_text("does not answer")
    assert page.evaluate(COUNT_COLOURS, ["--s-active"])[0] > 1000
    # AND it goes on by itself when the dashboard is back
    again = Served(live, tmp_path, port=served.port)
    expect(page.locator("#server-gone")).not_to_be_visible()
    # AND with another token it says which URL to open
    page.context.clear_cookies()
    expect(page.locator("#server-gone")).to_contain_text("another token")
    page.context.close()
    again.close()


def test_what_the_collector_and_the_ranks_say_is_shown(serve: Serve, open_page: Open) -> None:
    live = FakeLiveData(messages=("NVML is missing: libnvidia-ml.so.1 was not found",), notes=("torch 2.4 copies",))
    page = open_page(serve(live))
    expect(page.locator("#banners")).to_contain_text("NVML is missing")
    expect(page.locator("#banners")).to_contain_text("Rank 0: torch 2.4 copies")
    expect(page.locator("#footer")).to_contain_text("0.4 % of wall time")


def test_the_theme_follows_the_system_and_the_switch(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(FakeLiveData()), scheme="light")
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(246, 247, 249)"
    page.locator("#theme label", has_text="Dark").click()
    page.wait_for_function(f"() => {background} === 'rgb(14, 17, 22)'")
    # AND the choice outlives a reload
    page.reload()
    page.wait_for_function(f"() => {background} === 'rgb(14, 17, 22)'")


def test_two_tabs_show_two_things(serve: Serve, open_page: Open) -> None:
    url = serve(FakeLiveData(ranks=2))
    first, second = open_page(url), open_page(url)
    second.locator("#rank label", has_text="1").click()
    second.wait_for_url(re.compile("rank=1"))
    first.click("#pause")
    expect(first.locator("#light-text")).to_have_text("paused")
    expect(second.locator("#light-text")).to_have_text("live")
    expect(first.locator("#rank label", has_text="0").locator("input")).to_be_checked()


def test_panning_the_timeline_loads_that_range_and_leads_back(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(FakeLiveData()))
    page.wait_for_selector("#timeline .nsewdrag")
    # WHEN the timeline is dragged to the past
    with page.expect_request(lambda request: "timeline.json" in request.url and "from=" in request.url):
        box = page.locator("#timeline .nsewdrag").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 100, box["y"] + 40)
        page.mouse.down()
        page.mouse.move(box["x"] + 300, box["y"] + 40, steps=5)
        page.mouse.up()
    # THEN it stays there, and "Back to now" leads back
    expect(page.locator("#timeline-now")).to_be_visible()
    with page.expect_request(lambda request: "timeline.json" in request.url and "window_s=60" in request.url):
        page.click("#timeline-now")
    expect(page.locator("#timeline-now")).not_to_be_visible()


def test_a_longer_window_asks_for_it(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(FakeLiveData()))
    with page.expect_request(lambda request: "timeline.json" in request.url and "window_s=3600" in request.url):
        page.locator("#timeline-window label", has_text="1 h").click()


def test_the_map_is_exported_as_png(serve: Serve, open_page: Open, tmp_path: Path) -> None:
    page = open_page(serve(FakeLiveData()))
    with page.expect_download() as waited:
        page.click("#map-export")
    waited.value.save_as(tmp_path / "map.png")
    data = (tmp_path / "map.png").read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert width > 1000
    assert height > 400
    # A picture of blocks does not compress to nothing.
    assert len(data) > 20_000


def test_the_table_of_owners_is_saved_as_csv(serve: Serve, open_page: Open, tmp_path: Path) -> None:
    page = open_page(serve(FakeLiveData()))
    expect(page.locator("#owner-grid .ag-row").first).to_be_visible()
    with page.expect_download() as waited:
        page.click("#owner-csv")
    waited.value.save_as(tmp_path / "owners.csv")
    lines = (tmp_path / "owners.csv").read_text(encoding="utf-8-sig").splitlines()
    assert lines[0] == '"Owner","Tensor","Shape","Type","MiB"'
    assert len(lines) == 301


@pytest.mark.parametrize("start", ["=", "+", "-", "@"])
def test_a_spreadsheet_takes_no_tensors_name_for_a_formula(
    serve: Serve, open_page: Open, tmp_path: Path, start: str
) -> None:
    # GIVEN tensors whose names begin as formulas do
    page = open_page(serve(FakeLiveData(tensor_prefix=f"{start}1+1 ")))
    expect(page.locator("#owner-grid .ag-row").first).to_be_visible()
    # WHEN the table is saved
    with page.expect_download() as waited:
        page.click("#owner-csv")
    waited.value.save_as(tmp_path / "owners.csv")
    # THEN their names are text, and sizes are still numbers
    rows = list(csv.DictReader((tmp_path / "owners.csv").read_text(encoding="utf-8-sig").splitlines()))
    named = [row["Tensor"] for row in rows if "1+1" in row["Tensor"]]
    assert named
    assert all(name.startswith(f"'{start}1+1 ") for name in named)
    assert all(float(row["MiB"]) > 0 for row in rows)


def test_the_table_of_owners_can_be_read_without_widening_it(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(FakeLiveData()))
    expect(page.locator("#owner-grid .ag-row").first).to_be_visible()
    # THEN no owner, no type and no size is cut, and no two-dimensional shape
    cut = page.evaluate("""() => [...document.querySelectorAll("#owner-grid .ag-cell")]
      .filter((cell) => cell.scrollWidth > cell.clientWidth && cell.getAttribute("col-id") !== "name")
      .map((cell) => cell.textContent)""")
    assert cut == []


def test_a_selected_block_leaves_room_for_the_owners(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(FakeLiveData(updates_per_s=0.001)))
    page.mouse.click(*middle_of_map(page, 0.3, 0.4))
    expect(page.locator("#block-stack")).not_to_be_empty()
    # THEN the table stays within its panel, and shows rows
    panel, grid = page.locator(".owner-panel").bounding_box(), page.locator("#owner-grid").bounding_box()
    assert panel is not None
    assert grid is not None
    assert grid["y"] + grid["height"] <= panel["y"] + panel["height"] + 1
    assert grid["height"] > 100


def test_hostile_names_are_shown_as_text(serve: Serve, open_page: Open) -> None:
    # GIVEN a job, its tensors, its marks and its notes with HTML for names
    live = FakeLiveData(
        job_name=HOSTILE,
        tensor_prefix=HOSTILE,
        mark_label=HOSTILE,
        notes=(HOSTILE,),
        messages=(HOSTILE,),
        updates_per_s=0.001,
    )
    page = open_page(serve(live))
    page.on("dialog", lambda dialog: dialog.dismiss())
    # THEN each place shows the text itself
    expect(page.locator("#job")).to_contain_text(HOSTILE)
    expect(page.locator("#banners")).to_contain_text(HOSTILE)
    expect(page.locator("#owner-grid")).to_contain_text(HOSTILE)
    expect(page.locator("#timeline .annotation-text", has_text="<img src=x onerror")).to_be_visible()
    page.locator("#owner-grid .ag-center-cols-container .ag-row", has_text="<img").first.click()
    expect(page.locator("#block-facts")).to_contain_text(HOSTILE)
    # AND no element was made of any of them
    assert page.locator("img[src=x]").count() == 0


def test_a_phone_needs_no_sideways_scrolling(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(FakeLiveData(ranks=4, devices=2)), width=390, height=844)
    expect(page.locator("#owner-grid .ag-row").first).to_be_attached()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
