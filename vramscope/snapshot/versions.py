"""Which torch wrote a snapshot, guessed from the keys that are there; first seen in, as read from its releases."""

from __future__ import annotations

from collections.abc import Iterable

# (the first release that has it, what tells it), newest first.
SIGNS = (
    ("2.14", "host_segments"),
    ("2.12", "event pool_id"),
    ("2.10", "event user_metadata"),
    ("2.8", "event compile_context"),
    ("2.6", "external_annotations"),
    ("2.3", "allocator_settings"),
    ("2.2", "event time_us"),
    ("2.1", "segment_pool_id"),
)
OLDEST = "2.0"


def guess_version(present: Iterable[str], judged: Iterable[str]) -> str:
    """Return as "2.10 or 2.11", "2.12 or later" or "2.6 to 2.9" what may have written a file.

    ``present`` are the signs that are there; ``judged`` those that would be there if the release knew them: a file without
    events cannot show an event's keys, and a bare segment list no key beside the segments.
    """
    present, judged = set(present), set(judged)
    at_least = next((release for release, sign in SIGNS if sign in present), OLDEST)
    newer = [release for release, sign in SIGNS if sign in judged - present and _minor(release) > _minor(at_least)]
    if not newer:
        return f"{at_least} or later"
    at_most = _minor(min(newer, key=_minor)) - 1
    if at_most <= _minor(at_least):
        return at_least
    return f"{at_least} {'or' if at_most == _minor(at_least) + 1 else 'to'} 2.{at_most}"


def _minor(release: str) -> int:
    return int(release.split(".")[1])
