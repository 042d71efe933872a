"""The routes of /api/v1 over a LiveData in memory: what they answer, and how they refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flask.testing import FlaskClient

import vramscope
from dashboard import api
from tests.fake_live_data import START_UNIX_US, FakeLiveData
from vramscope.columns import INACTIVE, from_segments
from vramscope.errors import VramscopeError
from vramscope.records import COUNTERS, HISTORY, DeviceStats, DumpInfo, Timeline

DEVICE = "/api/v1/jobs/job-1/devices/0"


def get(client: FlaskClient, path: str, status: int = 200) -> Any:
    response = client.get(path)
    assert response.status_code == status, response.text
    assert response.mimetype == "application/json"
    assert response.headers["Cache-Control"] == "no-store"
    return response.get_json()


def test_healthz_tells_the_version_and_the_collector(client: FlaskClient, live: FakeLiveData) -> None:
    assert get(client, "/healthz") == {"status": "ok", "collector": True, "version": vramscope.__version__}
    live.connected = False
    assert get(client, "/healthz")["collector"] is False


def test_jobs_lists_ranks_and_devices(client: FlaskClient, live: FakeLiveData) -> None:
    (job,) = get(client, "/api/v1/jobs")["jobs"]
    assert {
        "id": "job-1",
        "name": live.job_name,
        "simulated": False,
        "ended": False,
        "world_size": 2,
    }.items() <= job.items()
    assert [rank["rank"] for rank in job["ranks"]] == [0, 1]
    assert [device["device"] for device in job["ranks"][1]["devices"]] == [0, 1]

    live.ended = True
    (job,) = get(client, "/api/v1/jobs")["jobs"]
    assert job["ended"] is True
    assert job["ranks"][0]["end_reason"] == "exited"


def test_no_job_is_an_empty_list(client: FlaskClient, live: FakeLiveData) -> None:
    live.no_jobs = True
    assert get(client, "/api/v1/jobs") == {"jobs": []}


def test_stats_are_flat_and_equal_the_map(client: FlaskClient, live: FakeLiveData) -> None:
    # WHEN
    stats = get(client, f"{DEVICE}/stats?rank=1")

    # THEN
    found = live.device_map("job-1", 0, 1)
    assert found is not None
    assert stats["reserved_bytes"] == int(found.segment_total_bytes.sum())
    assert stats["active_bytes"] == int(found.block_bytes[found.block_state != INACTIVE].sum())
    assert (stats["job"], stats["rank"], stats["device"]) == ("job-1", 1, 0)
    assert stats["nvml"]["used_bytes"] - stats["reserved_bytes"] == 3 << 30
    assert stats["num_alloc_retries"] == 3
    assert stats["agent"]["cost_ratio"] == 0.004
    own = [block["size_bytes"] for block in stats["largest_free_blocks"]]
    assert max(own) == int(found.block_bytes[found.block_state == INACTIVE].max())


def test_a_figure_that_is_unknown_is_null_and_never_absent_or_0(client: FlaskClient, live: FakeLiveData) -> None:
    # GIVEN a device of which neither counters nor a map nor NVML's readings have arrived
    def stats(job_id: str, device: int, rank: int | None = None) -> DeviceStats:
        return DeviceStats(job_id, 0, device, START_UNIX_US, None, {"active_bytes": None}, {}, None, {}, None)

    live.stats = stats  # type: ignore[method-assign]

    # WHEN
    found = get(client, f"{DEVICE}/stats")

    # THEN
    for name in (*COUNTERS, "largest_fit_bytes", "stranded_ratio", "releasable_bytes", "external_fragmentation_ratio"):
        assert name in found
        assert found[name] is None
    assert found["nvml"] is None
    assert found["map_time_unix_us"] is None


def test_a_figure_of_the_map_stands_in_for_a_counter_that_is_unknown(client: FlaskClient, live: FakeLiveData) -> None:
    known = live.stats("job-1", 0)
    assert known is not None
    counters = {**known.counters, "active_bytes": None, "allocated_bytes": 5}
    figures = {**known.from_map, "active_bytes": 7, "allocated_bytes": 6}
    live.stats = lambda *_: replace(known, counters=counters, from_map=figures)  # type: ignore[method-assign]

    found = get(client, f"{DEVICE}/stats")

    assert (found["active_bytes"], found["allocated_bytes"]) == (7, 5)


def test_the_map_is_in_pytorchs_own_form(client: FlaskClient, live: FakeLiveData) -> None:
    # WHEN
    answer = get(client, f"{DEVICE}/map?rank=1&max_age_ms=60000")

    # THEN it reads back as the same map
    found = live.device_map("job-1", 0, 1, max_age_s=60)
    assert found is not None
    again = from_segments(answer["segments"], device=0)
    assert np.array_equal(again.block_address, found.block_address)
    assert np.array_equal(again.block_bytes, found.block_bytes)
    assert np.array_equal(again.block_state, found.block_state)
    assert answer["time_unix_us"] == found.time_unix_us


@pytest.mark.parametrize("limit", [0, 1, 7, 100_000])
def test_the_bytes_of_all_owners_add_up_however_few_are_listed(
    client: FlaskClient, live: FakeLiveData, limit: int
) -> None:
    # WHEN
    answer = get(client, f"{DEVICE}/owners?limit={limit}")

    # THEN
    found = live.device_map("job-1", 0)
    assert found is not None
    assert answer["active_bytes"] == int(found.block_bytes[found.block_state != INACTIVE].sum())
    assert sum(owner["bytes"] for owner in answer["owners"]) == answer["active_bytes"]
    assert sum(answer["categories"].values()) == answer["active_bytes"]
    listed = [owner for owner in answer["owners"] if owner["address"] is not None]
    assert len(listed) <= limit
    assert answer["truncated"] is (limit < 100_000)
    assert answer["omitted"] == len(get(client, f"{DEVICE}/owners?limit=100000")["owners"]) - len(listed)
    assert len(answer["owners"]) - len(listed) <= len(answer["categories"])


def test_owners_have_full_names_and_an_unnamed_one_has_none(client: FlaskClient) -> None:
    owners = get(client, f"{DEVICE}/owners?limit=100000")["owners"]
    parameter = next(owner for owner in owners if owner["category"] == "parameter")
    assert parameter["name"].startswith("layers.")
    assert (parameter["shape"], parameter["dtype"]) == ("(2048, 2048)", "bfloat16")
    assert all(owner["name"] is None for owner in owners if owner["category"] == "activation")
    assert all(owner["rule"] for owner in owners)


def test_the_timeline_has_lows_and_highs_by_name(client: FlaskClient) -> None:
    # WHEN
    last = get(client, f"{DEVICE}/timeline")["last_unix_us"]
    answer = get(client, f"{DEVICE}/timeline?from={last - 60_000_000}&to={last}&points=50")

    # THEN
    assert len(answer["time_unix_us"]) == 50
    assert set(answer["low"]) == set(answer["high"]) == set(HISTORY)
    both = zip(answer["low"]["active_bytes"], answer["high"]["active_bytes"], strict=True)
    known = [(low, high) for low, high in both if low is not None]  # the history has holes of 20 s
    assert known
    assert all(low < high for low, high in known)
    # AND what is unknown is null, since NaN is no JSON
    assert answer["low"]["num_ooms"] == [None] * 50
    assert {"retry", "user"} <= {mark["kind"] for mark in answer["marks"]}


def test_a_gap_is_null_in_each_series(client: FlaskClient, live: FakeLiveData) -> None:
    series = {name: np.array([1.0, np.nan, 2.0]) for name in HISTORY}
    live.timeline = lambda *_, **__: Timeline(np.array([1, 2, 3]), series, series, 0)  # type: ignore[method-assign]
    assert get(client, f"{DEVICE}/timeline")["low"]["active_bytes"] == [1.0, None, 2.0]


def test_devices_are_nvmls_readings(client: FlaskClient) -> None:
    devices = get(client, "/api/v1/devices")["devices"]
    assert [device["uuid"] for device in devices] == ["GPU-00", "GPU-01"]
    assert devices[0]["temperature_celsius"] is None


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/jobs/job-2/devices/0/stats",
        f"{DEVICE}/map?rank=9",
        "/api/v1/jobs/job-1/devices/7/owners",
        "/api/v1/jobs/job-1/devices/7/timeline",
        "/api/v1/jobs/job-2/dumps",
        "/api/v1/jobs/job-1/devices/99999999999999999999/map",
        "/api/v1/jobs/job-1/devices/-1/map",
        "/api/v1/",
        "/api/v1/nothing",
        "/dumps/nothing",
        "/dumps/..%2f..%2fetc%2fpasswd",
    ],
)
def test_what_is_not_there_is_404_with_one_line(client: FlaskClient, path: str) -> None:
    line = get(client, path, 404)["error"]
    assert line
    assert "\n" not in line


@pytest.mark.parametrize(
    "query",
    ["rank=x", "rank=-1", "rank=1.5", "rank=", "rank=99999999999999999999", "max_age_ms=soon", "max_age_ms=٣"],
)
def test_a_parameter_that_is_no_integer_in_range_is_400(client: FlaskClient, query: str) -> None:
    for route in ("stats", "map", "owners"):
        assert query.partition("=")[0] in get(client, f"{DEVICE}/{route}?{query}", 400)["error"]


@pytest.mark.parametrize("query", ["points=1", "points=5001", "from=2&to=1", "from=yesterday", "to=-5"])
def test_a_range_that_cannot_be_is_400(client: FlaskClient, query: str) -> None:
    assert get(client, f"{DEVICE}/timeline?{query}", 400)["error"]


def test_too_many_owners_are_refused(client: FlaskClient) -> None:
    assert "limit" in get(client, f"{DEVICE}/owners?limit={api.MAX_OWNERS + 1}", 400)["error"]


def test_a_method_that_a_route_does_not_have_is_refused_as_json(client: FlaskClient) -> None:
    response = client.post("/api/v1/jobs")
    assert response.status_code == 404
    assert set(response.get_json()) == {"error"}


def test_a_dump_is_listed_and_downloaded(client: FlaskClient, live: FakeLiveData, dumps_folder: Path) -> None:
    # GIVEN a job that writes its snapshot where the collector asks it to
    path = dumps_folder / "job-1-rank1.pickle"
    path.write_bytes(b"\x80\x04N.")
    info = DumpInfo("dump-7", "job-1", 1, START_UNIX_US, str(path), 4)
    live.dump = lambda job_id, rank=None: info  # type: ignore[method-assign]
    live.dumps = lambda job_id=None: [info]  # type: ignore[method-assign]

    # WHEN
    response = client.post("/api/v1/jobs/job-1/dump?rank=1")

    # THEN
    assert response.status_code == 201
    assert response.get_json()["download"] == "dumps/dump-7"
    assert get(client, "/api/v1/jobs/job-1/dumps")["dumps"] == [response.get_json()]
    with client.get("/dumps/dump-7") as download:
        assert download.data == b"\x80\x04N."
    assert download.headers["Content-Disposition"] == "attachment; filename=job-1-rank1.pickle"
    assert download.headers["Cache-Control"] == "no-store"


def test_a_dump_that_the_job_cannot_write_is_503_with_its_reason(client: FlaskClient, live: FakeLiveData) -> None:
    live.ended = True
    response = client.post("/api/v1/jobs/job-1/dump")
    assert response.status_code == 503
    assert "has ended" in response.get_json()["error"]


def test_a_dump_of_an_unknown_job_is_404(client: FlaskClient) -> None:
    assert client.post("/api/v1/jobs/job-2/dump").status_code == 404


def test_nothing_outside_the_folder_is_handed_out(
    client: FlaskClient, live: FakeLiveData, dumps_folder: Path, tmp_path: Path
) -> None:
    # GIVEN records of a hostile job: a path elsewhere, a way out, a link to outside, and a file that is gone
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (dumps_folder / "link").symlink_to(secret)
    paths = [secret, dumps_folder / ".." / "secret", dumps_folder / "link", dumps_folder / "gone", dumps_folder]
    found = [DumpInfo(f"dump-{n}", "job-1", 0, 0, str(path), 6) for n, path in enumerate(paths)]
    live.dumps = lambda job_id=None: found  # type: ignore[method-assign]

    # THEN
    for dump in found:
        assert "secret" not in get(client, f"/dumps/{dump.id}", 404)["error"]


def test_an_error_for_people_of_any_route_is_one_line(client: FlaskClient, live: FakeLiveData) -> None:
    def fail(*_: object, **__: object) -> None:
        raise VramscopeError("the history cannot be read: the disk is full")

    live.timeline = fail  # type: ignore[method-assign, assignment]
    assert get(client, f"{DEVICE}/timeline", 503) == {"error": "the history cannot be read: the disk is full"}
