"""Uploads in pieces, over real files and a real folder, and who may send and remove."""

from __future__ import annotations

import shutil
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from dashboard import files_uploads
from tests.integration.postmortem_site import BEARER, Site, said
from tests.unit.snapshot.trees import small_tree, write
from tests.unit.trace.test_tables import content


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
        file_id = site.opened(path).removeprefix("files/")
        answer = site.client.delete(f"/postmortem/files/{file_id}")
        assert (answer.status_code, said(answer)["error"]) == (400, "only uploads can be removed here")
        # AND it stays open
        assert path.exists()
        assert site.state(file_id)["state"] == "open"

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
