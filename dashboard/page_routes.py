"""The page's own routes: the map as a binary frame, one block's name, and the timeline's figure."""

from __future__ import annotations

import time
from collections.abc import Sequence

import flask

from dashboard import maps
from dashboard.answers import as_json
from dashboard.figures import block_facts, segment_map, timeline
from vramscope.agent.categories import CATEGORIES
from vramscope.records import JobInfo, LiveData

# Younger than this, a map need not be asked for again; four pictures a second is what an eye can follow.
MAP_AGE_S = 0.2
# A tooltip is about the picture that is shown, so the map behind it will do.
KNOWN_MAP_AGE_S = 30.0
MOST_POINTS = 2000
# Longer than any history; keeps the window's start within the 64 bits of a time.
MOST_WINDOW_S = 10**9


def register(server: flask.Flask, live: LiveData) -> None:
    """Add the routes under ``/live/`` to ``server``."""

    @server.get("/live/blocks.bin")
    def live_blocks() -> flask.Response:
        """Answer the binary frame, or small JSON: ``{"unchanged": true}``, ``{"nothing": true}``."""
        args = flask.request.args
        sort, pool = args.get("sort", "size"), args.get("pool", "all")
        if sort not in segment_map.SORTS or pool not in segment_map.POOLS:
            return as_json({"error": "sort is size or address; pool is all, large or small"}, 400)
        found = live.device_map(args.get("job", ""), _number("device") or 0, _number("rank"), max_age_s=MAP_AGE_S)
        if found is None:
            return as_json({"nothing": True})
        token = maps.token(found)
        if args.get("since") == token:
            return as_json({"unchanged": True})
        picture = segment_map.build(found, maps.owners_of(found).category, sort=sort, pool=pool)
        header = {
            "token": token,
            "categories": CATEGORIES,
            "time_unix_us": found.time_unix_us,
            "age_us": max(0, int(time.time() * 1e6) - found.time_unix_us),
            "segments": found.segment_count,
            "blocks": found.block_count,
        }
        return flask.Response(segment_map.encode(picture, header), mimetype="application/octet-stream")

    @server.get("/live/block.json")
    def live_block() -> flask.Response:
        """Answer what the tooltip says about the block at ``address`` beyond what the frame holds."""
        args = flask.request.args
        address = _number("address")
        found = live.device_map(args.get("job", ""), _number("device") or 0, _number("rank"), max_age_s=KNOWN_MAP_AGE_S)
        facts = None if found is None or address is None else block_facts.find(found, maps.owners_of(found), address)
        return as_json({"owner": facts.owner, "name": facts.name, "shape": facts.shape} if facts else {})

    @server.get("/live/timeline.json")
    def live_timeline() -> flask.Response:
        """Answer a Plotly figure of ``window_s`` seconds up to now or ``at`` (µs), of ``from``..``to`` (µs), or of everything."""
        args = flask.request.args
        now = _number("at") or _now_us(live.jobs(), args.get("job"), _number("rank"))
        window_s = _number("window_s")
        window_s = None if window_s is None else min(window_s, MOST_WINDOW_S)
        window = timeline.Window(now, window_s, _number("from"), _number("to"))
        width = min(max(_number("width") or 800, 200), 4000)
        start, end = window.bounds()
        found = live.timeline(
            args.get("job", ""),
            _number("device") or 0,
            _number("rank"),
            from_unix_us=start,
            to_unix_us=end,
            points=min(width, MOST_POINTS),
        )
        return as_json({"nothing": True} if found is None else timeline.figure(found, window, width_px=width))


def _now_us(jobs: Sequence[JobInfo], job_id: str | None, rank: int | None) -> int:
    """Return the present, or for a rank that has ended the moment of its end: "the last minute" is the job's last."""
    ranks = [found for job in jobs if job.id == job_id for found in job.ranks if rank is None or found.rank == rank]
    ends = [found.ended_unix_us for found in ranks]
    ended = [end for end in ends if end is not None]
    return max(ended) if ended and len(ended) == len(ends) else int(time.time() * 1e6)


def _number(name: str) -> int | None:
    """Return a query parameter as an integer of at most 18 digits; None where it is absent or something else."""
    text = flask.request.args.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None
