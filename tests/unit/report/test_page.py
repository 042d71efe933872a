"""The report as text: what it says, and that nothing of a file gets into it as markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.unit.compare.jobs import FORWARD, LOOP, STEP, Call, content_of, job, traced
from vramscope.allocator import Allocator
from vramscope.allocator.out_of_memory import OutOfMemory
from vramscope.report.content import content_of as report_content
from vramscope.report.page import BEGINNING, page
from vramscope.report.paths import shorten
from vramscope.trace.columns import TracedSnapshot
from vramscope.units import GIB, MIB

EVIL = '"><img src=x onerror=alert(1)><script>alert(2)</script>&'


class _Elements(HTMLParser):
    """Collects the names of all elements and of their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def report(found: TracedSnapshot, name: str = "job.pickle", **options: Any) -> str:
    return page(report_content(found, name=name, **options), made_at="2026-12-01")


def out_of_memory() -> TracedSnapshot:
    """A job of 1 GiB that holds 600 MiB, was refused 2 GiB, and freed everything afterwards."""
    allocator = Allocator(GIB)
    addresses = [allocator.malloc(300 * MIB, frames=FORWARD) for _ in range(2)]
    with pytest.raises(OutOfMemory):
        allocator.malloc(2 * GIB, frames=STEP)
    for address in addresses:
        allocator.free(address)
    return traced(allocator.snapshot())


def test_it_shows_the_moment_of_the_out_of_memory_unless_told_otherwise() -> None:
    found = out_of_memory()
    assert report_content(found, name="a").totals["active_bytes"] == 600 * MIB
    assert report_content(found, name="a", at="end").totals["active_bytes"] == 0
    text = report(found)
    assert "Out of memory</strong> at event" in text
    assert "2.00 GiB asked" in text
    assert "Asked by step (/home/ada/train.py:60)" in text
    assert "600.0 MiB" in text
    assert "forward (/home/ada/model.py:30)" in text


def test_no_banner_without_an_out_of_memory() -> None:
    assert "Out of memory" not in report(job((4 * MIB, LOOP)))


def test_without_an_out_of_memory_it_shows_the_peak_and_without_a_trace_the_end() -> None:
    # GIVEN
    calls: list[Call] = [(4 * MIB, LOOP), (600 * MIB, FORWARD), 1]
    content = content_of(*calls)

    # THEN
    assert report_content(job(*calls), name="a").totals["active_bytes"] == 604 * MIB
    content["device_traces"] = [[]]
    assert report_content(traced(content), name="a").totals["active_bytes"] == 4 * MIB


def test_nothing_of_a_file_becomes_markup() -> None:
    # GIVEN a file whose every text is an attack
    content = content_of((4 * MIB, ((f"/x/{EVIL}.py", 1, EVIL), (EVIL, 2, EVIL))))
    content["allocator_settings"][EVIL] = EVIL
    plain = _Elements(report(job((4 * MIB, FORWARD))))

    # WHEN
    attacked = _Elements(report(traced(content), name=EVIL))

    # THEN it has the elements and attributes of any other report, and shows the texts as they are
    assert attacked.names <= plain.names
    assert attacked.attributes <= plain.attributes
    assert not {"script", "img", "a", "link", "iframe"} & plain.names
    assert not any(name.startswith("on") for name in plain.attributes)
    assert "".join(attacked.words).count("onerror=alert(1)") > 4


def test_it_asks_nothing_of_a_network() -> None:
    text = report(out_of_memory())
    assert "default-src 'none'" in text.replace("&#x27;", "'")
    assert not re.search(r"https?:|url\(|@import|src=|href=", text)


def test_paths_are_shortened_everywhere_when_asked() -> None:
    found = job((4 * MIB, FORWARD), (2 * MIB, STEP))
    assert "/home/ada" in report(found)
    short = report(found, shorten=shorten)
    assert "home" not in short
    assert "ada/" not in short
    assert "/opt/venv" not in short
    assert "site-packages/torch/nn/functional.py" in short


def test_what_is_missing_is_said() -> None:
    content = content_of((4 * MIB, ()))
    content["device_traces"] = [[]]
    text = report(traced(content))
    assert "no allocations were recorded" in text
    assert "no stack recorded" in text
    assert "<dt>peak active in trace</dt><dd>–</dd>" in text


def test_a_report_begins_as_no_other_file_does() -> None:
    assert report(job((4 * MIB, LOOP))).startswith(BEGINNING)
