"""``vramscope fit``: whether a request would have been served at a moment of a snapshot, and what is in the way."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from vramscope.cli.opening import open_file
from vramscope.cli.printing import print_out
from vramscope.compare.side import Side, side_of
from vramscope.replay.fit import Answer, would_fit
from vramscope.snapshot.opening import printable, shown
from vramscope.units import format_bytes


def run(arguments: argparse.Namespace) -> int:
    """Print what ``arguments`` ask for. Raises BadInputError with one line where the file or the moment cannot be read."""
    traced = open_file(arguments.file, arguments.state_dir)
    side = side_of(traced, name=shown(arguments.file), device=arguments.device, at=arguments.at)
    answer = would_fit(side, arguments.size, stream=_stream(side, arguments.stream), driver_free_bytes=arguments.free)
    print_out(json.dumps(answer.as_dict(), indent=1) if arguments.json else "\n".join(text_lines(side, answer)))
    return 0


def _stream(side: Side, given: int | None) -> int:
    """Return the stream to ask for: at an out-of-memory that of the request which failed, if no other is given."""
    if given is not None:
        return given
    events, event = side.trace.events, side.moment.event
    return int(events.stream[event]) if event in events.oom_event.tolist() else 0


def text_lines(side: Side, answer: Answer) -> Iterator[str]:
    """Yield the lines for people: the answer, what is in the way, the largest request by pool, and the doubts."""
    stream = f"stream {answer.stream}" if answer.stream else "the default stream"
    yield f"{side.name}, device {answer.device}, {side.when}, on {stream}"
    yield f"{format_bytes(answer.size_bytes)} (a block of {answer.block_bytes} bytes): {_verdict(answer)}"
    holes = answer.holes
    yield (
        f"cached for it: {format_bytes(holes.usable_bytes)} free in {holes.count} holes,"
        f" the largest of {format_bytes(holes.largest_bytes)}"
    )
    yield f"cached for other streams, pools or sizes: {format_bytes(answer.elsewhere_bytes)}"
    free = answer.driver_free_bytes
    yield "free on the device: " + (
        format_bytes(free) if free is not None else "not known; give it with --free, as nvidia-smi shows it"
    )
    yield "largest request that would be served" + (":" if free is not None else ", with nothing from the driver:")
    for row in answer.largest:
        name = "default pool" if row.pool == (0, 0) else f"private pool {row.pool}"
        yield f"  {name}: " + (f"{format_bytes(row.size_bytes)} ({row.way})" if row.way else "none")
    for line in answer.doubts:
        yield f"doubt: {printable(line)}"


def _verdict(answer: Answer) -> str:
    released = f" ({format_bytes(answer.released_bytes)} would be released before)" if answer.released_bytes else ""
    served = f"would be served: {answer.way}{released}" if answer.way else f"would fail{released}"
    if answer.driver_needed_bytes is None:
        return served
    needed = format_bytes(answer.driver_needed_bytes)
    return f"would be served by {answer.way_if_driver_has} if the driver has {needed} free; without, it {served}"
