"""The Compare page, as somebody who looks at it meets it."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from dashboard.files import SnapshotFiles
from tests.browser.conftest import PATIENCE_MS, Open, Serve
from tests.fake_live_data import FakeLiveData
from tests.unit.compare.jobs import FORWARD, LOOP, STEP, content_of
from vramscope.units import MIB

expect.set_options(timeout=PATIENCE_MS)

HOSTILE = "<img src=x onerror=alert(1)>"

# Opens the page with a query over the files of the given names and contents; {name} in the query is a file's id.
Compare = Callable[..., Page]


@pytest.fixture
def compare(serve: Serve, open_page: Open, tmp_path: Path) -> Compare:
    def start(query: str, *, files: dict[str, Any], **options: Any) -> Page:
        live = FakeLiveData(no_jobs=True)
        registry = SnapshotFiles(tmp_path / "state", live, dumps_folder=tmp_path)
        ids = {}
        for name, content in files.items():
            path = tmp_path / f"{name}.pickle"
            path.write_bytes(pickle.dumps(content))
            ids[name] = registry.add_path(path)
        url = serve(live).replace("/?token", f"/compare/?{query.format(**ids)}&token")
        return open_page(url, wait=False, **options)

    return start


def before_and_after() -> dict[str, Any]:
    """Two jobs: the second has an optimizer, and more activations; the first had 200 MiB more at its peak."""
    return {
        "before": content_of((40 * MIB, FORWARD), (200 * MIB, LOOP), 1),
        "after": content_of((40 * MIB, FORWARD), (60 * MIB, FORWARD), (30 * MIB, STEP)),
    }


def total(page: Page, name: str) -> Any:
    return page.locator(".compare-total", has_text=name).locator(".compare-difference")


def pick(page: Page, picker: str, label: str) -> None:
    page.click(f"#{picker}")
    page.locator(".dash-dropdown-content .dash-options-list-option", has_text=label).first.click()


def test_a_link_shows_what_differs_the_largest_first(compare: Compare) -> None:
    page = compare("a={before}&b={after}", files=before_and_after())
    expect(total(page, "active").first).to_have_text("+90.0 MiB")
    sites = page.locator(".compare-table", has_text="allocation site").locator("tbody tr")
    expect(sites.nth(0)).to_contain_text(re.compile(r"\+60\.0 MiB.*grown.*forward \(/home/ada/model\.py:30\)"))
    expect(sites.nth(1)).to_contain_text(re.compile(r"\+30\.0 MiB.*only in B.*step"))
    # Both timelines are drawn, the active and the reserved bytes of each.
    expect(page.locator("#compare-lines .scatterlayer .trace")).to_have_count(4)


def test_files_are_picked_and_the_address_becomes_a_link_to_what_is_shown(compare: Compare, open_page: Open) -> None:
    # GIVEN the page as the header leads to it
    page = compare("", files=before_and_after())
    expect(page.locator("#compare-empty")).to_be_visible()

    # WHEN
    pick(page, "compare-file-a", "before.pickle")
    pick(page, "compare-file-b", "after.pickle")
    expect(total(page, "active").first).to_have_text("+90.0 MiB")
    pick(page, "compare-moment-a", "peak")

    # THEN
    expect(total(page, "active").first).to_have_text("-110.0 MiB")
    expect(page).to_have_url(re.compile(r"\?a=[0-9a-f]{16}&a_gpu=0&a_at=peak&b=[0-9a-f]{16}&b_gpu=0$"))
    # AND a reload shows the same
    page.reload()
    expect(total(page, "active").first).to_have_text("-110.0 MiB")


def test_the_sides_can_be_swapped(compare: Compare) -> None:
    page = compare("a={before}&b={after}", files=before_and_after())
    expect(total(page, "active").first).to_have_text("+90.0 MiB")
    page.click("#compare-swap")
    expect(total(page, "active").first).to_have_text("-90.0 MiB")
    page.click("#compare-swap")
    expect(total(page, "active").first).to_have_text("+90.0 MiB")


def test_two_moments_of_one_file_by_the_number_of_an_event(compare: Compare) -> None:
    page = compare("a={before}&b={before}", files=before_and_after())
    expect(total(page, "active").first).to_have_text("0 B")
    pick(page, "compare-moment-b", "event number")
    page.fill("#compare-event-b", "3")
    page.press("#compare-event-b", "Enter")
    expect(total(page, "active").first).to_have_text("+200.0 MiB")
    expect(page).to_have_url(re.compile("b_at=3"))


def test_line_numbers_can_be_left_out(compare: Compare) -> None:
    moved = tuple((file, line + 1, function) for file, line, function in LOOP)
    files = {"before": content_of((4 * MIB, LOOP)), "after": content_of((4 * MIB, moved))}
    page = compare("a={before}&b={after}", files=files)
    stacks = page.locator(".compare-table", has_text="whole stack").locator("tbody tr")
    expect(stacks).to_have_count(2)
    page.check("#compare-ignore-lines input")
    expect(stacks).to_have_count(1)
    expect(stacks).to_contain_text("the same")


def test_timelines_are_aligned_where_it_is_wished(compare: Compare) -> None:
    page = compare("a={before}&b={after}", files=before_and_after())
    title = page.locator("#compare-lines .xtitle")
    expect(title).to_contain_text("from the start of each trace")
    page.locator("#compare-align label", has_text="Peak").click()
    expect(title).to_contain_text("from the peak of each trace")
    expect(page).to_have_url(re.compile("align=peak"))


def test_a_file_that_is_no_snapshot_says_so_at_its_side(compare: Compare) -> None:
    page = compare("a={before}&b={other}", files={**before_and_after(), "other": {"epoch": 3}})
    expect(page.locator("#compare-status-b")).to_contain_text("other.pickle")
    expect(page.locator("#compare-result")).to_be_hidden()


def test_texts_of_a_file_stay_texts(compare: Compare) -> None:
    files = {"a": content_of((4 * MIB, ((f"/x/{HOSTILE}", 1, HOSTILE),))), "b": content_of((4 * MIB, LOOP))}
    page = compare("a={a}&b={b}", files=files)
    expect(page.locator(".compare-table", has_text="allocation site")).to_contain_text(HOSTILE)
    assert page.locator("main img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_in_one_direction(compare: Compare, scheme: str) -> None:
    page = compare("a={before}&b={after}", files=before_and_after(), width=390, height=844, scheme=scheme)
    expect(total(page, "active").first).to_have_text("+90.0 MiB")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_theme_is_the_one_that_was_chosen(compare: Compare) -> None:
    page = compare("", files={})
    page.locator("#theme label", has_text="Light").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
