"""The post-mortem routes of a device over real files, as the page asks them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.integration.postmortem_site import Site, frame_of, said
from tests.segments import BASE, segment
from tests.unit.snapshot.trees import event, frame, oom, tree, write
from tests.unit.trace.test_tables import content
from vramscope.units import KIB, MIB

PUBLISHED = Path(__file__).parents[3] / "shared" / "cases" / "snapshots"


class TestViews:
    @pytest.fixture
    def device(self, site: Site) -> str:
        return f"{site.opened(write(site.folder, content()))}/0"

    def test_the_timeline_frame_has_the_columns_that_its_head_announces(self, site: Site, device: str) -> None:
        # WHEN
        header, body = frame_of(site.get(f"{device}/timeline.bin", axis="time", width=100))

        # THEN
        drawn, width = header["drawn"], header["width"]
        assert (drawn, width, header["basis"], header["visible"]) == (3, 100, "block bytes", 3)
        assert len(body) == 8 * (3 * drawn + 5 * width) + (4 + 4 + 1) * drawn
        start, end, size = (np.frombuffer(body, "<f8", drawn, 8 * drawn * column) for column in range(3))
        assert size.tolist() == [MIB, 512 * KIB, 256 * KIB]
        assert (start.tolist(), end.tolist()) == ([999, 1000, 2000], [2001, 1500, 2001])
        columns = np.frombuffer(body, "<f8", 5 * width, 8 * 3 * drawn).reshape(5, width)
        level, low, high, rest, reserved = columns
        assert (level[0], level[-1], high.max(), low.min()) == (MIB, MIB, MIB + 512 * KIB, MIB)
        assert (rest == 0).all()
        assert (reserved == 2 * MIB).all()
        flags = np.frombuffer(body, np.uint8, drawn, len(body) - drawn)
        assert flags.tolist() == [1 | 2, 0, 2]
        assert header["labels"] == {"0": "unknown", "5": "activation"}

    @pytest.mark.parametrize("colour", ["category", "stack", "size", "stream"])
    def test_every_colour_is_told(self, site: Site, device: str, colour: str) -> None:
        header, _ = frame_of(site.get(f"{device}/timeline.bin", axis="step", colour=colour))
        assert header["colour"] == colour
        assert colour == "stack" or header["labels"]

    def test_the_map_at_an_event_is_the_live_maps_frame(self, site: Site, device: str) -> None:
        header, body = frame_of(site.get(f"{device}/moment.bin", event=0))
        assert (header["segments"], header["blocks"], header["uncertain"]) == (1, 3, 0)
        assert (header["active_bytes"], header["requested_bytes"]) == (MIB + 512 * KIB, MIB - 100 + 512 * KIB)
        assert header["row"]["label"].startswith("alloc 512.0 KiB at 0x")
        owners = np.frombuffer(body, np.uint8, header["pieces"], len(body) - header["pieces"])
        assert owners.tolist() == [0, 5, 255]
        assert header["time_unix_us"] == 1000

    def test_stepping_goes_to_the_next_event_of_a_kind(self, site: Site, device: str) -> None:
        assert site.json(f"{device}/step.json", event=0, by="1", only="alloc")["event"] == 3
        assert site.json(f"{device}/step.json", event=3, by="-1", only="free")["event"] == 2
        assert site.json(f"{device}/step.json", event=0, by="-1") == {"event": -1, "row": None, "end": False}
        assert site.json(f"{device}/step.json", event=-1, by="-1")["end"] is True
        assert site.json(f"{device}/step.json", event=3, by="1")["end"] is True
        assert site.json(f"{device}/near.json", axis="time", at=1600)["event"] == 2

    def test_stacks_at_the_cursor_the_peak_and_over_a_range(self, site: Site, device: str) -> None:
        assert site.json(f"{device}/stacks.json", at="event", event=3)["bytes"] == MIB + 256 * KIB
        assert site.json(f"{device}/stacks.json", at="peak")["bytes"] == MIB + 512 * KIB
        found = site.json(f"{device}/stacks.json", **{"at": "range", "from": 0, "to": 3})
        assert (found["bytes"], found["blocks"]) == (768 * KIB, 2)
        assert site.json(f"{device}/stacks.json", at="peak", text="setup")["shown"] == MIB
        assert found["figure"]["data"][0]["type"] == "icicle"

    def test_tables_come_in_pages(self, site: Site, device: str) -> None:
        page = site.json(f"{device}/rows.json", table="events", first=1, last=3)
        assert ([row["event"] for row in page["rows"]], page["total"]) == ([1, 2], 4)
        page = site.json(f"{device}/rows.json", table="events", only="alloc", order="desc")
        assert [row["event"] for row in page["rows"]] == [3, 0]
        page = site.json(f"{device}/rows.json", table="allocations", event=3)
        assert [row["bytes"] for row in page["rows"]] == [MIB, 256 * KIB]
        assert site.json(f"{device}/rows.json", table="sites")["total"] == 2
        assert site.json(f"{device}/rows.json", table="segments")["rows"][0]["bytes"] == 2 * MIB

    def test_a_block_an_allocation_and_a_search_lead_to_each_other(self, site: Site, device: str) -> None:
        hit = site.json(f"{device}/search.json", q="512KiB")["hits"][0]
        by_number = site.json(f"{device}/allocation.json", allocation=hit["allocation"], event=0)
        by_address = site.json(f"{device}/block.json", event=0, address=hit["address"])
        assert by_number == by_address
        assert by_number["before"]["bytes"] == MIB
        assert site.json(f"{device}/block.json", event=0, address=BASE + 5 * MIB) == {}

    @pytest.mark.parametrize(
        ("path", "arguments"),
        [
            ("timeline.bin", {"axis": "sideways"}),
            ("timeline.bin", {"from": "nan"}),
            ("timeline.bin", {"width": 5}),
            ("moment.bin", {"event": 4}),
            ("moment.bin", {"event": "9" * 40}),
            ("moment.bin", {"sort": "colour"}),
            ("rows.json", {"table": "users"}),
            ("rows.json", {"table": "events", "first": 0, "last": 5000}),
            ("rows.json", {"table": "events", "only": "alloc,everything"}),
            ("block.json", {"address": "0xzz"}),
            ("block.json", {"address": str(1 << 64)}),
            ("allocation.json", {"allocation": 3}),
            ("search.json", {"q": ""}),
            ("stacks.json", {"at": "dawn"}),
        ],
    )
    def test_arguments_that_cannot_be_used_are_refused_with_one_line(
        self, site: Site, device: str, path: str, arguments: dict[str, Any]
    ) -> None:
        answer = site.get(f"{device}/{path}", **arguments)
        assert (answer.status_code, list(said(answer))) == (400, ["error"])
        assert "\n" not in said(answer)["error"]

    def test_a_device_that_is_not_there_is_404(self, site: Site, device: str) -> None:
        assert site.get(f"{device[:-1]}7/moment.bin").status_code == 404

    def test_an_out_of_memory_is_told_with_what_was_free(self, site: Site) -> None:
        # GIVEN
        large = segment((20 * MIB, "live"), (20 * MIB, "free"))
        path = write(site.folder, tree(large, traces=[[oom(30 * MIB, 5, frames=[frame("forward")])]]))

        # WHEN
        found = site.json(f"{site.opened(path)}/0/oom.json")

        # THEN
        assert found["left_out"] == 0
        assert found["ooms"][0]["largest_hole_bytes"] == 20 * MIB
        marks = site.json(f"{site.opened(path)}/0/marks.json")["marks"]
        assert [mark["kind"] for mark in marks] == ["oom"]

    def test_a_trace_that_contradicts_the_state_shows_the_end_only(self, site: Site) -> None:
        # GIVEN a trace that frees what is still there
        live = segment((MIB, "live"), (MIB, "free"), small=True)
        path = write(site.folder, tree(live, traces=[[event("alloc", 0, 1000), event("free_completed", 0, 1000)]]))
        device = f"{site.opened(path)}/0"

        # WHEN, THEN the timeline's place has the line, and the rest is of the final state
        answer = site.get(f"{device}/timeline.bin")
        assert answer.status_code == 409
        assert "do not fit the final state" in said(answer)["error"]
        header, _ = frame_of(site.get(f"{device}/moment.bin"))
        assert header["active_bytes"] == MIB
        assert site.json(f"{device}/stacks.json")["bytes"] == MIB
        assert site.json(f"{device}/rows.json", table="sites")["rows"][0]["bytes"] == MIB
        assert site.get(f"{device}/moment.bin", event=0).status_code == 400

    def test_a_file_that_contradicts_itself_shows_no_memory(self, site: Site) -> None:
        # GIVEN a block that ends beyond its segment
        broken = segment((MIB, "live"), (MIB, "free"), small=True)
        broken["blocks"][1]["size"] += 512
        path = write(site.folder, tree(broken, traces=[[event("alloc", 0, 1000)]]))
        device = f"{site.opened(path)}/0"

        # THEN what would be a guess is refused in one line, and its events are still listed
        for what in (
            "moment.bin",
            "stacks.json",
            "rows.json?table=sites",
            "rows.json?table=segments",
            "search.json?q=f",
        ):
            answer = site.client.get(f"/postmortem/{device}/{what}")
            assert answer.status_code == 400
            assert "do not fill their segments" in said(answer)["error"]
        (figures,) = site.state(device.split("/")[1])["snapshot"]["devices"]
        assert (figures["moments"], figures["reserved_bytes"]) == ("none", 2 * MIB)
        assert site.json(f"{device}/rows.json", table="events")["total"] == 1


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published snapshots are not here")
@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("[0-9]*.pickle")), ids=lambda path: path.name[:2])
def test_every_published_snapshot_is_shown(site: Site, path: Path) -> None:
    # GIVEN
    opened = site.opened(path)

    for figures in site.state(opened.removeprefix("files/"))["snapshot"]["devices"]:
        device = f"{opened}/{figures['device']}"
        if figures["moments"] == "none":
            assert path.name.startswith("08")
            continue
        # WHEN the final state is asked for in each way
        header, _ = frame_of(site.get(f"{device}/moment.bin"))
        stacks = site.json(f"{device}/stacks.json")

        # THEN they agree with each other, and with the file's own totals
        assert stacks["bytes"] == header["active_bytes"] == figures["active_bytes"]
        assert header["reserved_bytes"] == figures["reserved_bytes"]
        for table in ("allocations", "sites", "events", "segments"):
            assert site.json(f"{device}/rows.json", table=table)["total"] >= 0
        if figures["axes"]["step"] is not None:
            shown, _ = frame_of(site.get(f"{device}/timeline.bin"))
            assert figures["peak"] is None or shown["peak_in_view"]["bytes"] == figures["peak"]["bytes"]
        for found in site.json(f"{device}/oom.json")["ooms"]:
            assert found["verdict"]
