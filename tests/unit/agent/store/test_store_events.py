"""Events in the database: each on its own while they are few, counted in a storm, gone with their age."""

from __future__ import annotations

from pathlib import Path

from skuwise.agent.base.retention_limits import Limits
from skuwise.agent.model import Event, EventKind, Node
from skuwise.agent.store.retention.retention import RetentionJob
from skuwise.agent.store.writing.event_rows import MOST_ROWS_AN_HOUR
from skuwise.agent.store.writing.writer import Writer
from skuwise.tests.support.stored_rows import rows

T = 1_800_000_000.0  # a full hour


def xid(ts: float, code: int | None = 79, uuid: str | None = "GPU-a", kind: EventKind = "xid", count: int = 1) -> Event:
    return Event(ts, uuid, kind, code, "what it means", count, ts)


def kept(path: Path, *events: Event) -> list[tuple[object, ...]]:
    with Writer.open(path) as writer:
        node = writer.for_node(Node("n"), events[-1].ts)
        for event in events:
            node.add_event(event)
    return rows(path, "SELECT ts, last_ts, count, gpu_uuid, kind, code FROM events ORDER BY ts")


def test_an_event_is_a_row_and_its_repetition_within_a_minute_a_count(tmp_path: Path) -> None:
    found = kept(tmp_path / "a.db", xid(T), xid(T + 30), xid(T + 80), xid(T + 200), xid(T + 200, 31))
    assert found == [
        (T, T + 80, 3, "GPU-a", "xid", 79),
        (T + 200, T + 200, 1, "GPU-a", "xid", 79),
        (T + 200, T + 200, 1, "GPU-a", "xid", 31),
    ]
    assert rows(tmp_path / "a.db", "SELECT DISTINCT node, detail FROM events") == [("n", "what it means")]


def test_a_storm_of_many_kinds_is_bounded_and_none_goes_uncounted(tmp_path: Path) -> None:
    storm = [xid(T + n / 100, code=n % 500) for n in range(2_000)]
    found = kept(tmp_path / "a.db", *storm)
    assert len(found) == MOST_ROWS_AN_HOUR + 1
    assert sum(int(str(row[2])) for row in found) == 2_000
    assert {row[4] for row in found} == {"xid", "other"}


def test_events_go_with_the_hours_and_beyond_their_number(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    old, new = [xid(T + 120 * n) for n in range(50)], [xid(T + 20 * 86400 + 120 * n) for n in range(50)]
    kept(path, *old, *new)
    now = T + 20 * 86400 + 7200
    RetentionJob(path, Limits(hours_seconds=5 * 86400.0), sleep=lambda _: None).run(now)
    assert rows(path, "SELECT count(*), min(ts) FROM events") == [(50, T + 20 * 86400)]
    # What was seen within the last day stays: the writer may still count in it.
    RetentionJob(path, Limits(max_events=10), sleep=lambda _: None).run(now)
    assert rows(path, "SELECT count(*) FROM events") == [(50,)]
    RetentionJob(path, Limits(max_events=10), sleep=lambda _: None).run(now + 86000)
    assert rows(path, "SELECT count(*) FROM events") == [(10,)]
