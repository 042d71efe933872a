"""The registry of snapshot files over real files, real threads and a real folder: what may be opened, what is open, what is said."""

from __future__ import annotations

import shutil
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dashboard.auth
import dashboard.failures
import dashboard.files
from dashboard.files import MOST_OPEN, SnapshotFiles
from dashboard.files_remembered import MOST_REMEMBERED
from tests.integration.postmortem_site import BEARER, Site, site_over
from tests.unit.snapshot.trees import small_tree, write
from tests.unit.trace.test_tables import content
from tests.waiting import wait_for
from vramscope.errors import BadInputError
from vramscope.records import DumpInfo
from vramscope.snapshot.opening import OpeningCancelled
from vramscope.trace.columns import TracedSnapshot
from vramscope.trace.opening import open_traced
from vramscope.units import KIB, MIB


def counted_openings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return a list to which each file that is opened from now on is added."""
    opened: list[Path] = []

    def counting(path: Path, **options: Any) -> TracedSnapshot:
        opened.append(path)
        return open_traced(path, **options)

    monkeypatch.setattr(dashboard.files, "open_traced", counting)
    return opened


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

    def test_the_file_that_nobody_asked_for_the_longest_makes_room(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # GIVEN as many files as fit, of which the first was looked at last
        opened = counted_openings(monkeypatch)
        routes = [site.opened(write(site.folder, small_tree(), f"{number}.pickle")) for number in range(MOST_OPEN)]
        assert site.get(f"{routes[0]}/0/moment.bin").status_code == 200

        # WHEN another is opened, and the first is looked at again
        site.opened(write(site.folder, small_tree(), "another.pickle"))
        assert site.get(f"{routes[0]}/0/moment.bin").status_code == 200

        # THEN it had not made room
        assert len(opened) == MOST_OPEN + 1

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
