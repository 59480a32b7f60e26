"""Kill a watcher at any moment of its work: is every incident kept, and is everybody told of each event, and once?

Usage: python -m skuwise.benchmarks.performance.advisor.watch_kills [KILLS]. The watcher is `skuwise watch` from where
its findings are there: it goes through days of made-up sightings that come, go and flap, one pass every 5 minutes,
commits what they change, and queues each event for two recipients.
The queue is a file that takes each line once, as the outbox takes a message of one name once; the store notes it after
that. Each watcher is forked and dies by SIGKILL: one half at a line of skuwise's own code, counted from its beginning,
the other half after a random time, wherever it is, within SQLite too. The next one goes on where it died. In the end
one watcher runs undisturbed.
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import skuwise.advisor.incidents
import skuwise.advisor.ledger.guard
from skuwise.advisor.core.incident_types import WatchPass
from skuwise.advisor.incidents.settings import WatchSettings
from skuwise.advisor.incidents.store import IncidentStore
from skuwise.advisor.incidents.transitions import advance
from skuwise.tests.support.incident_builders import HOUR, MINUTE, NOW, sighting

WATCHED = (str(Path(str(skuwise.advisor.incidents.__file__)).parent), skuwise.advisor.ledger.guard.__file__, __file__)
RECIPIENTS = ("mail:ann@example.org", "webhook:search")
SUBJECTS = 12
PASSES = 3  # of one watcher, until it is done or killed
SETTINGS = WatchSettings(remind_every_seconds=HOUR)


@dataclass(frozen=True)
class Result:
    """`kills`: the functions that watchers died in, or "at a random time". `kept`: incidents that a watcher had
    committed; `lost`: those of them that are gone, and sightings of the last pass without one. `doubled`: subjects with
    two open incidents. `copies`: how often an event was queued for a recipient, by how many; `repeated`: how
    often the queue was asked once more and refused. `noted_twice`: what the
    store holds of one event and recipient more than once."""

    kills: tuple[str, ...]
    kept: int
    lost: int
    doubled: int
    events: int
    copies: dict[int, int]
    repeated: int
    noted_twice: int


def found_at(now: float) -> WatchPass:
    """What there is to find: each subject is idle, works and is silent by a pattern of its own."""
    minute = int((now - NOW) // MINUTE)
    idle = [n for n in range(SUBJECTS) if (minute + 37 * n) % (40 + 25 * n) < 25 + 15 * n]
    silent = [n for n in range(SUBJECTS) if n % 4 == 3 and minute % 200 < 60]
    found = tuple(sighting(f"w{n}", since=now - HOUR, until=now, nodes=(f"n{n}",)) for n in idle if n not in silent)
    return WatchPass(now, now, found, live_nodes=frozenset(f"n{n}" for n in range(SUBJECTS) if n not in silent))


def watch(path: Path, log: Path, now: float, passes: int) -> None:
    """What `skuwise watch` does but for reading and sending."""
    store = IncidentStore(path)
    with store.watching(), log.open("ab", buffering=0) as written:
        for number in range(passes):
            at = now + number * 5 * MINUTE
            done = advance(store.current(), found_at(at), SETTINGS)
            store.commit(done)
            written.write("".join(f"kept {one.id}\n" for one in done.incidents).encode())
            tell(store, log, written.write, at)


def tell(store: IncidentStore, log: Path, write: Callable[[bytes], object], now: float) -> None:
    known = frozenset(log.read_bytes().splitlines())
    for event, _ in store.untold():
        for recipient in RECIPIENTS:
            if recipient not in store.told(event):
                line = f"queued {event.incident_id} {event.number} {recipient}".encode()
                # Killed between queueing and noting it: the queue knows, the store does not.
                write(b"repeated %b\n" % line if line in known else b"%b\n" % line)
                store.note_queued(f"{now:.0f}", [event], recipient, now)
        store.settle([event])


def forked(job: Callable[[], None], *, kill_at: int = 0, kill_after: float | None = None) -> tuple[str, int]:
    """Run `job` in a child that dies at its `kill_at`-th line, or after `kill_after` seconds. Gives where it was, and
    how many lines it had done."""
    told, tell_parent = os.pipe()
    child = os.fork()
    if not child:
        done = 0

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal done
            if not frame.f_code.co_filename.startswith(WATCHED):
                return None
            if event == "line":
                done += 1
                if done == kill_at:
                    name = f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}"
                    os.write(tell_parent, f"{name} {done}".encode())
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        try:
            if kill_after is None:
                sys.settrace(trace)
            job()
            sys.settrace(None)
            os.write(tell_parent, f" {done}".encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(tell_parent)
    if kill_after is not None:
        time.sleep(kill_after)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    with open(told, "rb") as answer:  # noqa: PTH123 - a descriptor
        said = answer.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise AssertionError("A watcher failed without being killed.")
    where, _, lines = said.partition(" ")
    return ("at a random time" if kill_after is not None and not said else where), int(lines or 0)


def run(folder: Path, kills: int, seed: int) -> Result:
    """So many kills, all on one file."""
    rng = random.Random(seed)
    path, log = folder / "incidents.db", folder / "log"
    now, killed = NOW, list[str]()
    begun = time.perf_counter()
    watch(folder / "timing.db", folder / "timing.log", now, PASSES)
    seconds = time.perf_counter() - begun
    _, lines = forked(lambda: watch(folder / "lines.db", folder / "lines.log", now, PASSES))
    while len(killed) < kills:

        def job(at: float = now) -> None:
            watch(path, log, at, PASSES)

        if rng.random() < 0.5:
            where, _ = forked(job, kill_after=rng.uniform(0.0, seconds))
            seconds *= 1.1 if where else 0.8
        else:
            where, done = forked(job, kill_at=rng.randrange(lines) + 1)
            # How much there is to do differs; most are to die before their end, and some late in it.
            lines = int(lines * 1.1) if where else done
        if where:
            killed.append(where)
        now += rng.randint(1, PASSES) * 5 * MINUTE
    watch(path, log, now, 1)
    return judged(path, log, now, tuple(killed))


def judged(path: Path, log: Path, now: float, kills: tuple[str, ...]) -> Result:
    """What the file holds in the end against what was written down beside it."""
    store = IncidentStore(path)
    lines = [line.split() for line in log.read_text().splitlines()]
    every = store.listed(resolved_since=0.0)
    kept = {line[1] for line in lines if line[0] == "kept"}
    going_on: collections.Counter[str] = collections.Counter(
        one.sighting.id for one in every if one.resolved_at is None
    )
    lost = len(kept - {one.id for one in every}) + sum(not going_on[one.id] for one in found_at(now).sightings)
    with contextlib.closing(sqlite3.connect(path)) as db:
        events = db.execute("SELECT incident, number FROM events").fetchall()
        noted = "SELECT count(*) FROM (SELECT 1 FROM queued GROUP BY incident, number, recipient HAVING count(*) > 1)"
        twice = int(db.execute(noted).fetchone()[0])
    queued = collections.Counter((line[1], int(line[2]), line[3]) for line in lines if line[0] == "queued")
    copies = collections.Counter(
        queued[incident, number, recipient] for incident, number in events for recipient in RECIPIENTS
    )
    assert set(queued) <= {(i, n, r) for i, n in events for r in RECIPIENTS}, "something was queued that is no event"
    return Result(
        kills,
        len(kept),
        lost,
        sum(count > 1 for count in going_on.values()),
        len(events),
        dict(copies),
        sum(line[0] == "repeated" for line in lines),
        twice,
    )


def main() -> None:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        result = run(Path(folder), kills, seed=19)
    places = collections.Counter(where.partition(".")[0] for where in result.kills)
    print(f"{kills} kills: {', '.join(f'{count} in {where}' for where, count in places.most_common())}\n")
    print(f"incidents committed     {result.kept:>6}")
    print(f"incidents lost          {result.lost:>6}")
    print(f"subjects doubled        {result.doubled:>6}")
    print(f"events                  {result.events:>6}   for {len(RECIPIENTS)} recipients each")
    print(f"never queued            {result.copies.get(0, 0):>6}")
    print(f"queued once             {result.copies.get(1, 0):>6}")
    print(f"queued more than once   {sum(n for times, n in result.copies.items() if times > 1):>6}")
    print(f"asked for once more     {result.repeated:>6}   killed between queueing and noting it; the queue refused")
    print(f"noted twice in the file {result.noted_twice:>6}")


if __name__ == "__main__":
    main()
