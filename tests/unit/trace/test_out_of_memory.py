"""An out-of-memory says what was free and where, and claims nothing that does not follow."""

from __future__ import annotations

from typing import Any

from tests.segments import segment
from tests.unit.snapshot.trees import event, frame, oom, tree
from tests.unit.trace.views import TORCH, described
from vramscope.trace.moment import moment_at
from vramscope.trace.out_of_memory import Holes, out_of_memory, verdict
from vramscope.units import GIB, MIB

FORWARD = [frame("forward", 7, f"{TORCH}/nn/modules/linear.py"), frame("train", 4)]


def failed(*segments: dict[str, Any], asked: int, device_free: int = 0) -> dict[str, Any]:
    """Return what is told of a request that failed, with these segments there."""
    found = described(tree(*segments, traces=[[oom(asked, device_free, frames=FORWARD)]]))
    return out_of_memory(found, 0, moment_at(found.trace, 0))


def test_free_memory_in_small_holes_is_told_as_fragmentation() -> None:
    # GIVEN 30 MiB free in two holes of the large pool, and a free block of the small one
    large = segment((20 * MIB, "live"), (20 * MIB, "free"), (10 * MIB, "live"), (10 * MIB, "free"))
    small = segment((MIB, "live"), (MIB, "free"), at=GIB, small=True)

    # WHEN 25 MiB were asked
    found = failed(large, small, asked=25 * MIB, device_free=MIB)

    # THEN
    assert (found["free_bytes"], found["usable_bytes"], found["holes"]) == (31 * MIB, 30 * MIB, 2)
    assert found["largest_hole_bytes"] == 20 * MIB
    assert found["verdict"] == (
        "fragmented: 25.0 MiB were asked, and 30.0 MiB were cached and free for this request, "
        "but in 2 holes of at most 20.0 MiB; the device had 1.00 MiB free"
    )
    # AND who was on the card
    assert found["top"][0]["bytes"] == 20 * MIB
    assert sum(part["bytes"] for part in found["categories"]) == found["active_bytes"] == 31 * MIB
    assert found["reserved_bytes"] == 62 * MIB
    assert found["frames"][0][2] == "forward"


def test_holes_of_other_streams_and_pools_are_not_usable() -> None:
    # GIVEN a hole that is large enough in another stream, and one in a private pool
    other = segment((20 * MIB, "live"), (40 * MIB, "free"), stream=7)
    private = segment((20 * MIB, "live"), (40 * MIB, "free"), at=GIB, pool=(3, 0))

    # WHEN
    found = failed(other, private, asked=25 * MIB)

    # THEN
    assert (found["usable_bytes"], found["holes"], found["largest_hole_bytes"]) == (0, 0, 0)
    assert "but only 0 B of it in the request's stream, pool and size class" in found["verdict"]


def test_the_pool_of_the_request_counts_where_it_is_told() -> None:
    # GIVEN torch 2.12, which tells pools
    private = segment((20 * MIB, "live"), (40 * MIB, "free"), pool=(3, 0))
    found = described(tree(private, traces=[[oom(60 * MIB, 0, pool_id=(3, 0))]]))

    # WHEN
    told = out_of_memory(found, 0, moment_at(found.trace, 0))

    # THEN
    assert (told["holes"], told["largest_hole_bytes"]) == (1, 40 * MIB)


def test_a_full_card_is_told_as_full() -> None:
    found = failed(segment((60 * MIB, "live"), (4 * MIB, "free")), asked=25 * MIB, device_free=MIB)
    assert found["verdict"].startswith("full: 25.0 MiB were asked; 4.00 MiB were cached and free")


def test_a_hole_that_would_have_fitted_is_not_explained_away() -> None:
    line = verdict(25 * MIB, 0, 40 * MIB, Holes(1, 40 * MIB, 40 * MIB))
    assert "a hole of 40.0 MiB was cached in the request's stream and pool" in line
    assert "fragmented" not in line


def test_free_memory_of_the_device_points_to_a_limit() -> None:
    assert "set_per_process_memory_fraction" in verdict(25 * MIB, GIB, 0, Holes(0, 0, 0))


def test_what_does_not_follow_is_none() -> None:
    # GIVEN a trace that contradicts the final state
    live = segment((40 * MIB, "live"))
    found = described(tree(live, traces=[[oom(25 * MIB, 5), event("free_completed", 0, 40 * MIB)]]))

    # WHEN
    told = out_of_memory(found, 0, None)

    # THEN
    assert (told["free_bytes"], told["largest_hole_bytes"], told["device_free_bytes"]) == (None, None, 5)
    assert "does not follow" in told["verdict"]
