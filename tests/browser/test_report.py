"""A report, opened from the disk: it needs no network and no script, and nothing of a file becomes part of the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import PATIENCE_MS
from tests.unit.compare.jobs import FORWARD, LOOP, content_of, traced
from vramscope.report.content import content_of as report_content
from vramscope.report.page import page as report_page
from vramscope.units import MIB

expect.set_options(timeout=PATIENCE_MS)

HOSTILE = '"><img src=x onerror=document.title="broken"><script>document.title="broken"</script>'


def write(folder: Path) -> str:
    content = content_of((40 * MIB, FORWARD), (200 * MIB, ((HOSTILE, 1, HOSTILE), *LOOP)), 1)
    content["allocator_settings"][HOSTILE] = HOSTILE
    path = folder / "report.html"
    path.write_text(report_page(report_content(traced(content), name=HOSTILE), made_at="2026-12-01"))
    return path.as_uri()


@pytest.mark.parametrize("with_scripts", [True, False])
def test_it_is_whole_without_network_or_scripts(browser: Browser, tmp_path: Path, with_scripts: bool) -> None:
    # GIVEN
    url = write(tmp_path)
    context = browser.new_context(viewport={"width": 1440, "height": 900}, java_script_enabled=with_scripts)
    asked: list[str] = []
    logged: list[str] = []
    page = context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: logged.append(message.text))

    # WHEN
    page.goto(url)

    # THEN the pictures and the tables are there, and the texts are texts
    expect(page.locator("svg.timeline path.total")).to_be_visible()
    expect(page.locator("svg.map rect.block").first).to_be_visible()
    expect(page.locator("h1")).to_contain_text("onerror=document.title")
    summary = page.locator("summary", has_text="onerror").first
    summary.click()
    expect(page.locator("details[open] pre")).to_contain_text("main (/home/ada/train.py:90)")
    assert page.locator("img, script").count() == 0
    assert page.title().endswith("vramscope report")
    assert asked == [url]
    assert logged == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_in_one_direction(browser: Browser, tmp_path: Path, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    page.goto(write(tmp_path))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()
