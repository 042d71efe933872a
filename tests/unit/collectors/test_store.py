"""The history file: what was written is read back, by a later collector too; what goes first; what is refused."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import numpy as np
import pytest

from collectors import history, prune
from collectors.changes import Changes, SeriesKey
from collectors.keeper import Keeper
from collectors.rollup import LEVELS_US, METRIC_COUNT, Points, join, roll_up
from collectors.schema import RAW, read_points
from collectors.store import Store
from tests.collector_peers import counters, map_frame
from tests.unit.collectors.office import SECOND, START_US, Office
from vramscope.errors import BadInputError
from vramscope.records import Mark
from vramscope.units import MIB

MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
# A multiple of every level's width, so that tests can name the points.
BASE_US = START_US // MINUTE * MINUTE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def samples(start_us: int, count: int, *, step_us: int = SECOND // 10, seed: int = 0) -> Points:
    values = np.random.default_rng(seed).integers(0, 1 << 40, (count, METRIC_COUNT)).astype(float)
    return Points(start_us + np.arange(count) * step_us, values, values)


def changes_of(points: Points, *, job_id: str = "job", ended_us: int | None = None) -> Changes:
    """Return what a collector would hand over for one job with one rank and one device."""
    info = {"rank": 0, "ended_unix_us": ended_us}
    key = SeriesKey(job_id, 0, 0)
    return Changes(
        jobs={job_id: (job_id, "run", 1, False)},
        ranks={(job_id, 0): (info, ended_us, 10, 7)},
        stats={key: (int(points.time_unix_us[-1]), {})},
        samples={key: points},
    )


def read(path: Path, level_us: int, *, series: int = 1) -> Points:
    connection = history.open_history(path)
    try:
        return read_points(connection, series, level_us, 0, 1 << 62)
    finally:
        connection.close()


def test_samples_and_their_rollups_are_read_back_exactly(path: Path) -> None:
    # GIVEN two minutes of samples, written a second at a time
    whole = samples(BASE_US + 300_000, 1200)
    store = Store(path, cap_bytes=1 << 30)
    for at in range(0, 1200, 10):
        store.flush(changes_of(whole.pick(slice(at, at + 10))), BASE_US)
    store.close()

    # THEN each level has what rolling up the whole at once gives
    for level_us in (RAW, *LEVELS_US):
        expected = whole if level_us == RAW else roll_up(whole, level_us)
        for found, wanted in zip(read(path, level_us), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_a_later_collector_goes_on_with_the_open_points(path: Path) -> None:
    # GIVEN a store that was left in the middle of a minute, without a word
    first, second = samples(BASE_US, 155, seed=1), samples(BASE_US + 15_500_000, 100, seed=2)
    Store(path, cap_bytes=1 << 30).flush(changes_of(first), BASE_US)

    # WHEN another goes on
    Store(path, cap_bytes=1 << 30).flush(changes_of(second), BASE_US)

    # THEN the points that both had a part in have both
    whole = join([first, second])
    for level_us in LEVELS_US:
        np.testing.assert_array_equal(read(path, level_us).high, roll_up(whole, level_us).high)


def test_the_files_are_the_owners_alone(path: Path) -> None:
    store = Store(path, cap_bytes=1 << 30)
    store.flush(changes_of(samples(BASE_US, 5)), BASE_US)

    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    store.close()

    assert modes == {"history.sqlite": 0o600, "history.sqlite-wal": 0o600, "history.sqlite-shm": 0o600}


def test_age_decides_what_goes_at_each_level(path: Path) -> None:
    # GIVEN a point at each level on both sides of its age
    now_us = BASE_US + 10 * DAY
    store = Store(path, cap_bytes=1 << 30)
    ages = (9 * DAY, 3 * DAY + HOUR, 2 * DAY, 7 * HOUR, 5 * HOUR, 16 * MINUTE, 14 * MINUTE)
    for age_us in ages:
        store.flush(changes_of(samples(now_us - age_us, 1)), 0)

    # WHEN the store prunes
    store.flush(Changes(), now_us)
    store.close()

    # THEN each level reaches back as far as it should
    kept = {level_us: len(read(path, level_us).time_unix_us) for level_us in (RAW, *LEVELS_US)}
    assert kept == {RAW: 1, LEVELS_US[0]: 3, LEVELS_US[1]: 5, LEVELS_US[2]: 7}


def test_step_marks_thin_out_with_age_and_others_stay(path: Path) -> None:
    now_us = BASE_US + HOUR
    changes = changes_of(samples(BASE_US, 1))
    for age_us in (20 * MINUTE, MINUTE):
        for kind, lasting in (("step", False), ("step", True), ("oom", True)):
            changes.marks.append(("job", Mark(now_us - age_us, 0, kind, f"{kind} {lasting}"), lasting))
    store = Store(path, cap_bytes=1 << 30)

    store.flush(changes, now_us)
    store.close()

    found = sqlite3.connect(path).execute("SELECT label FROM marks WHERE time_unix_us < ?", (now_us - 10 * MINUTE,))
    assert sorted(label for (label,) in found) == ["oom True", "step True"]


def test_over_the_cap_samples_go_first_and_the_file_stays_under_it(path: Path) -> None:
    # GIVEN ten minutes of a running and of an ended job, which take more than the cap
    cap_bytes = 1_500_000
    store = Store(path, cap_bytes=cap_bytes)
    now_us = BASE_US + 10 * MINUTE
    for job_id, ended_us in (("ended", now_us), ("running", None)):
        store.flush(changes_of(samples(BASE_US, 6000), job_id=job_id, ended_us=ended_us), 0)
    assert store.used_bytes() > cap_bytes

    # WHEN the store prunes
    store.flush(Changes(), now_us)

    # THEN the ended job lost its samples before the running one, the oldest first, and no rollup was touched
    assert store.used_bytes() <= cap_bytes
    ended, running = (read(path, RAW, series=series) for series in (1, 2))
    assert len(ended.time_unix_us) < len(running.time_unix_us)
    assert running.time_unix_us[-1] == BASE_US + 5999 * SECOND // 10
    assert len(read(path, LEVELS_US[0], series=1).time_unix_us) == 600
    store.close()


def test_far_over_the_cap_whole_ended_jobs_go_the_first_ended_first(path: Path) -> None:
    # GIVEN jobs whose newest maps alone are over the cap, so that no point can help
    cap_bytes = 400_000
    store = Store(path, cap_bytes=cap_bytes)
    for number, ended_us in enumerate((BASE_US + 2, BASE_US + 1, None)):
        changes = changes_of(samples(BASE_US, 10), job_id=f"job-{number}", ended_us=ended_us)
        changes.maps[SeriesKey(f"job-{number}", 0, 0)] = (BASE_US, np.random.default_rng(number).bytes(150_000))
        store.flush(changes, 0)

    # WHEN the store prunes THEN it says which went, and the running job stays
    assert store.flush(Changes(), BASE_US + MINUTE) == ["job-1"]
    store.close()
    connection = sqlite3.connect(path)
    assert [job_id for (job_id,) in connection.execute("SELECT id FROM jobs ORDER BY id")] == ["job-0", "job-2"]


def test_of_ended_jobs_only_the_newest_are_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "ENDED_JOBS_KEPT", 2)
    store = Store(path, cap_bytes=1 << 30)
    for number in range(4):
        store.flush(changes_of(samples(BASE_US, 5), job_id=f"job-{number}", ended_us=BASE_US + number), 0)
    store.flush(changes_of(samples(BASE_US, 5), job_id="running"), 0)

    assert sorted(store.flush(Changes(), BASE_US + MINUTE)) == ["job-0", "job-1"]

    # THEN their points are gone too, and a later job that gets their place starts empty
    later = samples(BASE_US + SECOND, 5)
    store.flush(changes_of(later, job_id="later"), BASE_US + MINUTE)
    store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(DISTINCT series) FROM points").fetchone() == (4,)
    (series,) = connection.execute("SELECT id FROM series WHERE job_id = 'later'").fetchone()
    np.testing.assert_array_equal(read(path, LEVELS_US[2], series=series).low, roll_up(later, LEVELS_US[2]).low)


def test_a_reader_sees_whole_flushes_while_another_is_written(path: Path) -> None:
    # GIVEN a reader in the middle of a transaction
    store = Store(path, cap_bytes=1 << 30)
    store.flush(changes_of(samples(BASE_US, 10)), BASE_US)
    reader = history.open_history(path)
    reader.execute("BEGIN")
    before = len(read_points(reader, 1, RAW, 0, 1 << 62).time_unix_us)

    # WHEN the next flush is written THEN neither waits for the other
    store.flush(changes_of(samples(BASE_US + SECOND, 10)), BASE_US)
    assert len(read_points(reader, 1, RAW, 0, 1 << 62).time_unix_us) == before == 10
    reader.execute("COMMIT")
    assert len(read_points(reader, 1, RAW, 0, 1 << 62).time_unix_us) == 20
    reader.close()
    store.close()


def test_a_store_of_another_version_is_refused_and_left_as_it_is(path: Path) -> None:
    # GIVEN a history that a later vramscope wrote
    Store(path, cap_bytes=1 << 30).close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE meta SET value = '99' WHERE key = 'version'")
    connection.commit()
    connection.close()
    before = path.read_bytes()

    # WHEN this one opens it THEN one line says what to do, for reading and for writing
    for open_it in (lambda: Keeper(path, cap_bytes=1), lambda: history.open_history(path)):
        with pytest.raises(BadInputError, match=f"version 99.*move it away.*mv {path} {path}.old"):
            open_it()
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"this is not a database, by far" * 100, None], ids=["text", "another program's"])
def test_a_file_that_is_no_history_is_refused(path: Path, content: bytes | None) -> None:
    if content is None:
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE photos (id INTEGER)")
        connection.close()
    else:
        path.write_bytes(content)

    with pytest.raises(BadInputError, match="move it away"):
        Store(path, cap_bytes=1)


def test_a_store_that_died_while_it_was_created_is_created_again(path: Path) -> None:
    path.write_bytes(b"")

    Store(path, cap_bytes=1 << 30).close()

    history.open_history(path).close()


def test_a_history_that_cannot_be_written_is_tried_again_and_then_has_everything(path: Path) -> None:
    # GIVEN a place where no file can be, and a job
    path.mkdir()
    office = Office()
    job_id = office.agent(1)
    keeper = Keeper(path, cap_bytes=1 << 30)
    office.say(1, counters(START_US))
    keeper.flush(office.jobs, office.jobs.take_changes(), START_US)
    assert keeper.message is not None
    assert keeper.message.startswith("history is not kept: ")
    assert keeper.used_bytes() is None

    # WHEN the place is free again THEN it is used after ten seconds, and knows the job that was announced before
    path.rmdir()
    for second in (5, 11, 12):
        office.say(1, counters(START_US + second * SECOND))
        keeper.flush(office.jobs, office.jobs.take_changes(), START_US + second * SECOND)
        assert (keeper.message is None) == (second > 5)
    keeper.close()
    connection = history.open_history(path)
    assert [job.id for job in history.read_jobs(connection)] == [job_id]
    assert len(read(path, RAW).time_unix_us) == 2
    connection.close()


def test_what_a_collector_knew_is_what_the_next_one_loads(path: Path) -> None:
    # GIVEN a job with counters, a map at the end of a step, and a mark
    office = Office()
    job_id = office.agent(1, pid=10)
    office.say(1, counters(START_US, active_bytes=5 * MIB))
    office.say(1, map_frame(START_US + 1, at="step_end"))
    office.jobs.keep_maps()
    keeper = Keeper(path, cap_bytes=1 << 30)
    keeper.flush(office.jobs, office.jobs.take_changes(), START_US)
    keeper.close()

    # WHEN another collector loads it
    later = Office()
    later.processes[10] = 7
    keeper = Keeper(path, cap_bytes=1 << 30)
    assert keeper.load(later.jobs) == []
    keeper.close()

    # THEN it knows the job, takes the agent back as the same, and drops what the series already has
    assert later.jobs.by_id[job_id].record() == office.jobs.by_id[job_id].record()
    assert later.agent(2, pid=10) == job_id
    later.say(2, counters(START_US))
    assert later.jobs.dropped_samples == 1

    # AND the last map can be read with its boundary
    connection = history.open_history(path)
    found = history.read_map(connection, 1)
    connection.close()
    assert found is not None
    assert found.boundary_address is not None
    assert (found.block_count, found.boundary_address.tolist()) == (4, found.block_address[::2].tolist())


@pytest.mark.parametrize("info", ["{broken", "[]", '{"rank": 0}'])
def test_a_history_with_a_damaged_row_is_one_line_that_says_what_to_do(path: Path, info: str) -> None:
    # GIVEN a history of this version with a row that no vramscope wrote
    Store(path, cap_bytes=1 << 30).close()
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO jobs VALUES ('job', 'gpt', 'run-1', 1, 0)")
    connection.execute("INSERT INTO ranks VALUES ('job', 0, ?, NULL, 1, 1)", (info,))
    connection.commit()
    connection.close()

    # WHEN a collector starts over it THEN it does not, and says why
    keeper = Keeper(path, cap_bytes=1 << 30)
    with pytest.raises(BadInputError, match=f"is damaged .*mv {path} {path}.old") as refused:
        keeper.load(Office().jobs)
    assert "\n" not in str(refused.value)
    keeper.close()


def test_a_history_whose_size_cannot_be_read_is_not_kept_and_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a history on a disk that fails
    def fail(store: Store) -> int:
        raise sqlite3.OperationalError("disk I/O error")

    keeper = Keeper(path, cap_bytes=1 << 30)
    monkeypatch.setattr(Store, "used_bytes", fail)

    # WHEN somebody asks for its size THEN it is unknown
    assert keeper.used_bytes() is None
    assert keeper.message is not None
    assert "history is not kept" in keeper.message
