"""The post-mortem routes over real files, real threads and a real folder, as the page asks them."""

from __future__ import annotations

import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import flask
import numpy as np
import orjson
import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

import dashboard.auth
import dashboard.failures
import dashboard.files
from dashboard import files_uploads, postmortem_routes
from dashboard.files import MOST_OPEN, SnapshotFiles
from dashboard.files_remembered import MOST_REMEMBERED
from tests.fake_live_data import FakeLiveData
from tests.segments import BASE, segment
from tests.unit.snapshot.trees import event, frame, oom, small_tree, tree, write
from tests.unit.trace.test_tables import content
from tests.waiting import wait_for
from vramscope.errors import BadInputError
from vramscope.records import DumpInfo
from vramscope.snapshot.opening import OpeningCancelled
from vramscope.trace.columns import TracedSnapshot
from vramscope.trace.opening import open_traced
from vramscope.units import KIB, MIB

PUBLISHED = Path(__file__).parents[3] / "shared" / "cases" / "snapshots"
TOKEN = "a-token-of-the-tests"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Live(FakeLiveData):
    """Jobs in memory that have written the given dumps."""

    def __init__(self) -> None:
        super().__init__(blocks=100)
        self.written: list[DumpInfo] = []

    def dumps(self, job_id: str | None = None) -> list[DumpInfo]:
        return self.written


def said(answer: TestResponse) -> Any:
    """Return the JSON of an answer."""
    return answer.json


@dataclass
class Site:
    """A server over a registry, as a browser sees it that has the token."""

    folder: Path
    live: Live
    files: SnapshotFiles
    server: flask.Flask
    client: FlaskClient

    def get(self, path: str, **arguments: Any) -> TestResponse:
        return self.client.get(f"/postmortem/{path}", query_string=arguments)

    def json(self, path: str, **arguments: Any) -> Any:
        answer = self.get(path, **arguments)
        assert answer.status_code == 200, answer.text
        return said(answer)

    def opened(self, path: Path) -> str:
        """Register and open a file; return the start of its routes."""
        return self.wait(self.files.add_path(path))

    def wait(self, file_id: str, state: str = "open") -> str:
        self.client.post(f"/postmortem/files/{file_id}/open")
        wait_for(lambda: self.state(file_id)["state"] not in ("waiting", "opening"), "the file")
        assert self.state(file_id)["state"] == state, self.state(file_id)
        return f"files/{file_id}"

    def state(self, file_id: str) -> Any:
        return self.json(f"files/{file_id}/state.json")

    def upload(self, raw: bytes, name: str, piece: int = 1 << 20) -> str:
        """Send a file in pieces, and return its id."""
        begun = self.client.post("/postmortem/uploads", json={"name": name, "bytes": len(raw)})
        assert begun.status_code == 201, begun.text
        upload = f"/postmortem/uploads/{said(begun)['upload']}"
        for offset in range(0, len(raw), piece):
            put = self.client.put(f"{upload}?offset={offset}", data=raw[offset : offset + piece])
            assert put.status_code == 200, put.text
        return str(said(self.client.post(f"{upload}/finish"))["file"])


def site_over(folder: Path) -> Site:
    live = Live()
    files = SnapshotFiles(folder / "state", live, dumps_folder=folder / "state" / "dumps")
    server = flask.Flask("tests")
    postmortem_routes.register(server, files)
    dashboard.auth.protect(server, token=TOKEN, hosts=())
    dashboard.failures.guard(server)
    client = server.test_client()
    client.environ_base["HTTP_AUTHORIZATION"] = BEARER["Authorization"]
    return Site(folder, live, files, server, client)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = site_over(tmp_path)
    yield found
    found.files.close()


def frame_of(answer: TestResponse) -> tuple[dict[str, Any], memoryview]:
    """Return the header of a binary frame, and what follows it."""
    assert answer.status_code == 200, answer.text
    size = int.from_bytes(answer.data[4:8], "little")
    return orjson.loads(answer.data[8 : 8 + size]), memoryview(answer.data)[8 + size :]


class TestFiles:
    def test_a_file_is_opened_in_the_background_and_described(self, site: Site) -> None:
        # GIVEN a file named on the command line
        file_id = site.files.add_path(write(site.folder, content()))
        assert site.state(file_id)["state"] == "closed"

        # WHEN
        site.wait(file_id)

        # THEN
        found = site.state(file_id)
        device = found["snapshot"]["devices"][0]
        assert (device["reserved_bytes"], device["events"], device["moments"]) == (2 * MIB, 4, "all")
        assert device["axes"] == {"time": [999, 2001], "step": [-1, 4]}
        assert device["peak"] == {"bytes": MIB + 512 * KIB, "event": 0}
        assert device["capacity_bytes"] is None
        listed = site.json("files.json")["files"]
        assert [(row["file"], row["origin"], row["state"]) for row in listed] == [(file_id, "command line", "open")]

    def test_a_broken_file_says_one_line_and_may_be_tried_again(self, site: Site) -> None:
        # GIVEN
        file_id = site.files.add_path(write(site.folder, b"not a snapshot"))

        # WHEN, THEN twice
        for _ in range(2):
            site.wait(file_id, "failed")
            line = site.state(file_id)["error"]
            assert "cannot be read" in line
            assert "\n" not in line
            assert "Traceback" not in line
        assert site.get(f"files/{file_id}/0/moment.bin").status_code == 409

    def test_no_path_of_the_browsers_choosing_can_be_opened(self, site: Site) -> None:
        # GIVEN a file that nobody registered
        write(site.folder, small_tree())

        # WHEN, THEN
        for wanted in ("0123456789abcdef", "..%2f..%2fsnapshot.pickle", "snapshot.pickle"):
            answer = site.client.post(f"/postmortem/files/{wanted}/open")
            assert answer.status_code == 404
            assert "Traceback" not in answer.text

    def test_a_file_that_was_changed_or_is_gone_says_so(self, site: Site) -> None:
        # GIVEN
        path = write(site.folder, small_tree())
        file_id = site.files.add_path(path)

        # WHEN it changes
        path.write_bytes(path.read_bytes() + b"\0")

        # THEN
        site.wait(file_id, "failed")
        assert "was changed since" in site.state(file_id)["error"]
        # AND when it is gone
        path.unlink()
        site.wait(file_id, "failed")
        assert "cannot be read any more" in site.state(file_id)["error"]

    def test_links_survive_a_restart(self, site: Site) -> None:
        # GIVEN a file that was opened once
        file_id = site.files.add_path(write(site.folder, small_tree()))

        # WHEN another server starts over the same folder
        again = site_over(site.folder)

        # THEN
        again.wait(file_id)
        remembered = site.folder / "state" / "opened-files.json"
        assert stat.S_IMODE(remembered.stat().st_mode) == 0o600

    @pytest.mark.parametrize("damage", [b"", b"{", b"[1, null, {}]", b'[{"id": 3}]', b"\xff" * 100])
    def test_a_damaged_list_of_files_is_an_empty_one(self, tmp_path: Path, damage: bytes) -> None:
        (tmp_path / "state").mkdir(mode=0o700)
        (tmp_path / "state" / "opened-files.json").write_bytes(damage)
        assert site_over(tmp_path).json("files.json") == {"files": []}

    def test_only_the_newest_files_are_remembered(self, site: Site) -> None:
        # GIVEN
        ids = [
            site.files.add_path(write(site.folder, b"x", f"{number}.pickle")) for number in range(MOST_REMEMBERED + 5)
        ]

        # WHEN
        listed = {row["file"] for row in site.json("files.json")["files"]}

        # THEN
        assert listed == set(ids[5:])

    def test_two_dashboards_over_one_folder_keep_each_others_files(self, site: Site) -> None:
        # GIVEN two that both run
        other = site_over(site.folder)

        # WHEN each opens files in turns, at once with the other
        def add(files: SnapshotFiles, letter: str) -> None:
            ids.extend(files.add_path(write(site.folder, b"x", f"{letter}{number}.pickle")) for number in range(20))

        ids: list[str] = []
        threads = [threading.Thread(target=add, args=pair) for pair in ((site.files, "a"), (other.files, "b"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        # THEN a third one has them all
        assert {row["file"] for row in site_over(site.folder).json("files.json")["files"]} == set(ids)
        assert len(ids) == 40

    def test_an_upload_that_another_dashboard_removed_does_not_come_back(self, site: Site) -> None:
        # GIVEN an upload that two know
        upload = site.upload(b"x", "a.pickle")
        other = site_over(site.folder)

        # WHEN one removes it, and the other opens another file
        assert site.client.delete(f"/postmortem/files/{upload}").status_code == 200
        named = other.files.add_path(write(site.folder, small_tree()))

        # THEN
        assert [row["file"] for row in site_over(site.folder).json("files.json")["files"]] == [named]

    def test_files_open_where_the_list_of_them_cannot_be_written(self, site: Site) -> None:
        # GIVEN a state folder that has gone
        shutil.rmtree(site.folder / "state")
        # THEN what is named all the same is known, though it cannot be remembered
        file_id = site.files.add_path(write(site.folder, small_tree()))
        assert [row["file"] for row in site.json("files.json")["files"]] == [file_id]

    def test_what_is_no_file_is_refused_when_it_is_named(self, site: Site) -> None:
        for path in (site.folder, site.folder / "absent.pickle"):
            with pytest.raises(BadInputError, match=str(path)):
                site.files.add_path(path)

    def test_a_jobs_dumps_are_listed_and_open_and_nothing_outside_their_folder(self, site: Site) -> None:
        # GIVEN a dump in the folder, one beside it, and a link out of it
        dumps = site.folder / "state" / "dumps"
        dumps.mkdir()
        inside, outside = write(dumps, small_tree()), write(site.folder, small_tree(), "secret.pickle")
        (dumps / "link.pickle").symlink_to(outside)
        job = site.live.jobs()[0]
        record = DumpInfo("1", job.id, 0, 5, str(inside), inside.stat().st_size)
        site.live.written = [
            record,
            replace(record, id="2", path=str(outside)),
            replace(record, id="3", path=str(dumps / "link.pickle")),
        ]

        # WHEN
        listed = site.json("files.json")["files"]

        # THEN
        assert [(row["origin"], row["job"], row["job_name"], row["rank"]) for row in listed] == [
            ("job", job.id, job.name, 0)
        ]
        site.wait(listed[0]["file"])
        # AND the job tells the capacity that a snapshot does not
        device = site.state(listed[0]["file"])["snapshot"]["devices"][0]
        assert device["capacity_bytes"] == job.ranks[0].devices[0].total_bytes

    def test_two_tabs_share_one_opening(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        # GIVEN
        opened = counted_openings(monkeypatch)
        file_id = site.files.add_path(write(site.folder, small_tree()))

        # WHEN eight threads ask at once
        threads = [threading.Thread(target=site.files.start, args=(file_id,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        site.wait(file_id)

        # THEN
        assert len(opened) == 1

    def test_an_opening_can_be_cancelled_and_begun_again(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        # GIVEN an opening that takes long
        def slowly(path: Path, *, cancelled: Callable[[], bool], **_: Any) -> TracedSnapshot:
            wait_for(cancelled, "the request to end")
            raise OpeningCancelled("cancelled")

        file_id = site.files.add_path(write(site.folder, small_tree()))
        with monkeypatch.context() as patch:
            patch.setattr(dashboard.files, "open_traced", slowly)
            site.client.post(f"/postmortem/files/{file_id}/open")
            assert site.state(file_id)["state"] in ("waiting", "opening")

            # WHEN
            site.client.post(f"/postmortem/files/{file_id}/cancel")

            # THEN
            wait_for(lambda: site.state(file_id)["state"] == "cancelled", "the end of the opening")
        site.wait(file_id)

    def test_a_file_that_made_room_for_others_comes_back_by_itself(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # GIVEN one file more than fit
        opened = counted_openings(monkeypatch)
        routes = [site.opened(write(site.folder, small_tree(), f"{number}.pickle")) for number in range(MOST_OPEN + 1)]

        # WHEN, THEN
        assert site.get(f"{routes[0]}/0/moment.bin").status_code == 200
        assert site.get(f"{routes[-1]}/0/moment.bin").status_code == 200
        assert len(opened) == MOST_OPEN + 2

    def test_more_files_than_fit_are_answered_to_many_at_once(self, site: Site) -> None:
        # GIVEN three files more than fit, each of which was open
        count = MOST_OPEN + 3
        routes = [site.opened(write(site.folder, small_tree(), f"{number}.pickle")) for number in range(count)]

        # WHEN two tabs of each ask at the same time
        def ask(route: str) -> None:
            answers.append(site.server.test_client().get(f"/postmortem/{route}/0/oom.json", headers=BEARER).status_code)

        answers: list[int] = []
        threads = [threading.Thread(target=ask, args=(route,)) for route in (*routes, *routes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        # THEN nobody is told that the file is not open
        assert answers == [200] * 2 * count


def counted_openings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return a list to which each file that is opened from now on is added."""
    opened: list[Path] = []

    def counting(path: Path, **options: Any) -> TracedSnapshot:
        opened.append(path)
        return open_traced(path, **options)

    monkeypatch.setattr(dashboard.files, "open_traced", counting)
    return opened


class TestUploads:
    def test_an_upload_arrives_in_pieces_and_opens(self, site: Site) -> None:
        # GIVEN a name that would be a path elsewhere
        raw = write(site.folder, content()).read_bytes()

        # WHEN
        file_id = site.upload(raw, "../../etc/run<1>.pickle", piece=1000)

        # THEN
        site.wait(file_id)
        row = site.json("files.json")["files"][0]
        assert (row["name"], row["origin"], row["bytes"]) == ("run<1>.pickle", "upload", len(raw))
        kept = list((site.folder / "state" / "uploads").iterdir())
        assert [stat.S_IMODE(path.stat().st_mode) for path in kept] == [0o600]
        # AND it can be removed
        assert site.client.delete(f"/postmortem/files/{file_id}").status_code == 200
        assert not list((site.folder / "state" / "uploads").iterdir())
        assert site.get(f"files/{file_id}/state.json").status_code == 404

    def test_a_named_file_cannot_be_removed(self, site: Site) -> None:
        path = write(site.folder, small_tree())
        file_id = site.files.add_path(path)
        assert site.client.delete(f"/postmortem/files/{file_id}").status_code == 400
        assert path.exists()

    def test_an_upload_that_lost_a_piece_goes_on_where_it_was(self, site: Site) -> None:
        # GIVEN
        upload = said(site.client.post("/postmortem/uploads", json={"name": "a", "bytes": 10}))["upload"]
        url = f"/postmortem/uploads/{upload}"
        site.client.put(f"{url}?offset=0", data=b"12345")

        # WHEN a piece comes twice
        answer = site.client.put(f"{url}?offset=0", data=b"12345")

        # THEN
        assert (answer.status_code, said(answer)["received"]) == (409, 5)
        assert site.client.post(f"{url}/finish").status_code == 409
        assert site.client.put(f"{url}?offset=5", data=b"67890").json == {"received": 10}
        assert site.client.post(f"{url}/finish").status_code == 201

    def test_the_announced_size_is_kept(self, site: Site) -> None:
        upload = said(site.client.post("/postmortem/uploads", json={"name": "a", "bytes": 4}))["upload"]
        assert site.client.put(f"/postmortem/uploads/{upload}?offset=0", data=b"12345").status_code == 413

    @pytest.mark.parametrize(
        "asked",
        [{}, [], {"name": "a"}, {"name": 3, "bytes": 3}, {"name": "a", "bytes": "3"}, {"name": "a", "bytes": True}],
    )
    def test_a_strange_beginning_is_refused_with_one_line(self, site: Site, asked: Any) -> None:
        answer = site.client.post("/postmortem/uploads", json=asked)
        assert (answer.status_code, list(said(answer))) == (400, ["error"])

    @pytest.mark.parametrize("size", [0, -1, 1 << 50])
    def test_sizes_that_no_file_has_are_refused(self, site: Site, size: int) -> None:
        assert site.client.post("/postmortem/uploads", json={"name": "a", "bytes": size}).status_code == 413

    @pytest.mark.parametrize("body", ["[" * 100_000, '{"name": "a", "bytes": ' + "9" * 400 + "}"], ids=["deep", "huge"])
    def test_json_that_breaks_its_reader_is_refused_too(self, site: Site, body: str) -> None:
        answer = site.client.post("/postmortem/uploads", data=body, content_type="application/json")
        assert answer.status_code in (400, 413)
        assert "an upload" in said(answer)["error"]

    def test_a_folder_that_has_gone_is_told_at_every_step(self, site: Site) -> None:
        # GIVEN an upload that has begun, and one that is complete
        def begun(size: int) -> str:
            return str(said(site.client.post("/postmortem/uploads", json={"name": "a", "bytes": size}))["upload"])

        first, second = begun(1), begun(1)
        assert site.client.put(f"/postmortem/uploads/{second}?offset=0", data=b"x").status_code == 200
        shutil.rmtree(site.folder / "state" / "uploads")

        # WHEN, THEN
        for answer in (
            site.client.post("/postmortem/uploads", json={"name": "a", "bytes": 1}),
            site.client.put(f"/postmortem/uploads/{first}?offset=0", data=b"x"),
            site.client.post(f"/postmortem/uploads/{second}/finish"),
        ):
            assert answer.status_code == 507
            assert said(answer)["error"].startswith("cannot write to ")

    def test_a_finished_upload_is_finished_once(self, site: Site) -> None:
        # GIVEN one whose end is asked for by several at once
        upload = said(site.client.post("/postmortem/uploads", json={"name": "a", "bytes": 1}))["upload"]
        site.client.put(f"/postmortem/uploads/{upload}?offset=0", data=b"x")
        url, answers = f"/postmortem/uploads/{upload}/finish", []
        threads = [
            threading.Thread(
                target=lambda: answers.append(site.server.test_client().post(url, headers=BEARER).status_code)
            )
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # THEN
        assert sorted(answers) == [201, *[404] * 5]

    def test_a_full_disk_is_told_before_the_first_byte(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        # GIVEN
        usage = shutil.disk_usage(site.folder)._replace(free=10)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)

        # WHEN
        answer = site.client.post("/postmortem/uploads", json={"name": "a", "bytes": 100})

        # THEN
        assert answer.status_code == 507
        assert "vramscope open" in said(answer)["error"]

    def test_a_cancelled_upload_leaves_nothing(self, site: Site) -> None:
        upload = said(site.client.post("/postmortem/uploads", json={"name": "a", "bytes": 10}))["upload"]
        assert site.client.delete(f"/postmortem/uploads/{upload}").status_code == 200
        assert not list((site.folder / "state" / "uploads").iterdir())
        assert site.client.put(f"/postmortem/uploads/{upload}?offset=0", data=b"1").status_code == 404

    def test_the_oldest_uploads_go_when_there_are_too_many_bytes(self, tmp_path: Path) -> None:
        # GIVEN a folder for 1000 bytes
        uploads = files_uploads.Uploads(tmp_path / "uploads", limit_bytes=1000)

        def add(size: int) -> Path:
            upload = uploads.begin("a", size)
            uploads.add(upload, 0, b"x" * size)
            return uploads.finish(upload)[0]

        first, second = add(400), add(400)

        # WHEN
        third = add(500)

        # THEN
        assert [path.exists() for path in (first, second, third)] == [False, True, True]
        with pytest.raises(files_uploads.UploadRefused, match="from 1 byte to 1000 B"):
            uploads.begin("a", 1001)

    def test_a_page_of_another_origin_cannot_upload_or_open(self, site: Site) -> None:
        # GIVEN
        file_id = site.files.add_path(write(site.folder, small_tree()))
        foreign = {"Origin": "https://evil.example"}

        # WHEN, THEN
        for answer in (
            site.client.post("/postmortem/uploads", json={"name": "a", "bytes": 4}, headers=foreign),
            site.client.post(f"/postmortem/files/{file_id}/open", headers=foreign),
            site.client.delete(f"/postmortem/files/{file_id}", headers=foreign),
        ):
            assert answer.status_code == 403
        assert site.state(file_id)["state"] == "closed"

    def test_nothing_is_told_without_the_token(self, site: Site) -> None:
        site.client.environ_base.pop("HTTP_AUTHORIZATION")
        assert site.get("files.json").status_code == 401


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
