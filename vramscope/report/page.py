"""A report's content as one HTML page: no script, no network, and nothing of the file that is not escaped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import vramscope
from vramscope.agent.categories import CODE
from vramscope.columns import ACTIVE_PENDING_FREE, INACTIVE
from vramscope.compare.words import TOTAL_NAMES, amount
from vramscope.report.content import Content, OutOfMemory
from vramscope.report.markup import Markup, element
from vramscope.report.segment_map import FREE, PENDING, left_out, segment_map
from vramscope.report.tables import largest, section, settings, sites
from vramscope.report.timeline import timeline
from vramscope.trace.columns import BEFORE
from vramscope.trace.timeline_view import BLOCK_BYTES, timeline_of
from vramscope.units import format_address, format_bytes

# What every report begins with: by this a file is known as one that may be replaced.
BEGINNING = '<!doctype html>\n<html lang="en" data-made-by="vramscope report">'
# Neither scripts nor anything from elsewhere, whatever a file may say.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
STYLES = Path(__file__).with_name("report.css")


def page(content: Content, *, made_at: str) -> str:
    """Return the page; ``made_at`` is the time of its making in words."""
    side = content.side
    title = f"{side.name}, device {side.trace.device}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("title", f"{title} – vramscope report"),
        element("style", Markup(STYLES.read_text())),
    )
    body = element(
        "body",
        _header(content, title),
        *map(_out_of_memory, content.out_of_memories),
        _totals(content),
        _timeline(content),
        _map(content),
        sites(content),
        largest(content),
        settings(side.traced.snapshot.settings),
        _missing(content),
        element("footer", f"Made by vramscope {vramscope.__version__} on {made_at}."),
    )
    return f"{BEGINNING}{head}{body}</html>\n"


def _header(content: Content, title: str) -> Markup:
    snapshot, trace = content.side.traced.snapshot, content.side.trace
    moment = f"{content.side.when} of {trace.event_count} events" if trace.event_count else "no events recorded"
    facts = f"{moment} · {snapshot.container} · torch {snapshot.torch_version_guess} (guessed)"
    others = [str(other.device) for other in content.side.traced.traces if other is not trace]
    if others:
        facts += f" · also in the file: device {', '.join(others)}"
    return element("header", element("h1", title), element("p", facts, class_="muted"))


def _out_of_memory(found: OutOfMemory) -> Markup:
    facts = [
        f"{format_bytes(found.rounded_request_bytes)} asked",
        f"largest hole for it {format_bytes(found.largest_hole_bytes)}",
        f"{format_bytes(found.device_free_bytes)} free on the device",
    ]
    return element(
        "div",
        element("p", element("strong", "Out of memory"), f" at event {found.event}: {' · '.join(facts)}"),
        element("p", found.verdict[0].upper() + found.verdict[1:] + "."),
        element("p", f"Asked by {found.site}.", class_="muted"),
        class_="banner",
        role="alert",
    )


def _totals(content: Content) -> Markup:
    figures = (
        element("div", element("dt", TOTAL_NAMES[name]), element("dd", amount(name, value)))
        for name, value in content.totals.items()
    )
    return section(f"Totals {content.side.when}", element("dl", *figures, class_="totals"))


def _timeline(content: Content) -> Markup:
    side, trace = content.side, content.side.trace
    found = timeline_of(trace)
    if found is None:
        return section("Memory over the trace", trace.contradiction or "no allocations were recorded")
    marks = [(event, "out of memory", "mark") for event in trace.events.oom_event.tolist()]
    if found.peak is not None and found.peak.event != BEFORE:
        marks.append((found.peak.event, f"peak {format_bytes(found.peak.peak_bytes)}", "peak"))
    if side.moment.event not in {event for event, _, _ in marks}:
        marks.append((side.moment.event, "shown below", "cursor"))
    picture = timeline(found, owner=content.facts.category, describe=content.facts.site, marks=marks)
    words = (
        f"{'Active' if found.basis == BLOCK_BYTES else 'Requested'} bytes in colours of their owners, the largest allocations "
        "one by one, the others as one pale area; the line above is what was reserved. Each column shows its highest moment."
    )
    return section(
        "Memory over the trace", element("p", words, class_="muted"), element("div", picture, class_="scroll")
    )


def _map(content: Content) -> Markup:
    state = content.side.state
    hidden, hidden_bytes = left_out(state)
    rest = f"{hidden} smaller segments of {format_bytes(hidden_bytes)} are left out." if hidden else None
    picture = segment_map(
        state,
        owner=lambda block: content.facts.category(int(content.side.moment.block_stack[block])),
        describe=lambda block: _block(content, block),
    )
    return section(
        "Segments and their blocks",
        element("div", *_legend(content), class_="legend"),
        element("div", picture, class_="scroll"),
        None if rest is None else element("p", rest, class_="muted"),
    )


def _legend(content: Content) -> Iterator[Markup]:
    for part in content.categories:
        yield _key(f"owner-{CODE[str(part.key)]}", f"{part.label} {format_bytes(part.size_bytes)}")
    if (content.side.state.block_state == ACTIVE_PENDING_FREE).any():
        yield _key(PENDING, "pending free")
    yield _key(FREE, f"cached and free {format_bytes(content.totals['free_cached_bytes'])}")


def _key(colour: str, words: str) -> Markup:
    swatch = element(
        "svg", element("rect", width=10, height=10, class_=colour), viewBox="0 0 10 10", aria_hidden="true"
    )
    return element("span", swatch, words)


def _block(content: Content, block: int) -> str:
    state = content.side.state
    size, address = format_bytes(int(state.block_bytes[block])), format_address(int(state.block_address[block]))
    if state.block_state[block] == INACTIVE:
        return f"{size} free at {address}"
    return f"{size} at {address}, {content.facts.site(int(content.side.moment.block_stack[block]))}"


def _missing(content: Content) -> Markup:
    lines = content.side.notes
    text = element("ul", *(element("li", line) for line in lines)) if lines else "nothing was found missing"
    return section("What the file cannot tell", text)
