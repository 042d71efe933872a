"""What a trace cannot tell, or had to assume, in lines for people."""

from __future__ import annotations

from vramscope.trace.columns import DeviceTrace


def missing_of(trace: DeviceTrace) -> tuple[str, ...]:
    """Return the lines of ``trace``: its notes, and what is to be known about its peaks."""
    if trace.contradiction is not None:
        return (f"{trace.contradiction}, so there are no peaks",)
    lines = trace.notes
    if trace.peak_requested is None:
        return lines
    if trace.starts_mid_run:
        lines += (f"the trace begins in mid-run: its peaks are of {trace.event_count} events, not of the whole job",)
    if not trace.active_is_exact:
        lines += ("no peak of active bytes: the sizes of some blocks that are gone do not follow from this file",)
    return lines
