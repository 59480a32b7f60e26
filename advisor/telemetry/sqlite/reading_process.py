"""Databases read in a process apart: what its maker put into a file can end that process, and nothing else.

`ReadingProcess` keeps one such process for as many files as are read one after the other, and begins another when a
file has ended it. That file is named, its reading fails with a sentence, and it is not opened again by this
`ReadingProcess`: what all readings of a file may take together is bounded, in time (`bounds_of`, by the file's bytes on
the disk) and in what they give. The answers are measured and checked like those of a stranger.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....agent.base.self_command import child_command
from ....agent.store.reading.bounds import Bounds, bounds_of, disk_bytes
from ....agent.store.reading.packing import FRAME
from ....rules.base.errors import NothingToDo, SkuwiseError, StoreError, UsageError

if TYPE_CHECKING:  # it begins before pandas is there, and is ready when that is
    import pandas as pd

    from ....agent.store.reading.queries import Query
    from ....agent.store.reading.stored_rollups import StoredRollup
    from ..ipc_checks import Unpacked
    from ..only import Only
    from ..plausible import Lost
    from .stored_rows import StoredTables

_MODULE = "skuwise.agent.store.reading.reading_child"
# A machine that is overloaded takes seconds to start a program; one that takes longer starts none.
_START_SECONDS = 60.0
# The process ends a reading by itself, with a better sentence, before it is ended from outside.
_OWN_SHARE = 0.9
_MOST_HEAD_BYTES = 1 << 20
_MOST_TOLD = 4096
_END_SECONDS = 1.0
_PIPE_BYTES = 1 << 20
_LEFT_OUT = "Take a snapshot of it, or remove the file from --db."

_ERRORS = {kind.__name__: kind for kind in (NothingToDo, StoreError, UsageError)}
Parameters = Mapping[str, object]
Answer = tuple[Mapping[str, Any], memoryview]


class ProcessReader:
    """One open database. Raises StoreError from every method once something is wrong with it."""

    def __init__(self, apart: ReadingProcess, path: Path) -> None:
        self._apart, self.path = apart, path
        self._awaited: deque[str] = deque()
        self._ahead: dict[str, Answer] = {}
        self._most = 0

    def ahead(self, asked: Sequence[tuple[Query, Parameters]], only: Only | None = None) -> None:
        """Have several tables read in one go, for whoever asks for them next, once each and best in this order: the
        next is read while somebody makes something of the last. What cannot be read fails when it is asked for."""
        parts = [part for query, span in asked for part in self._parts(query, span, only)]
        if not parts:
            return
        self.drain()
        tasks = [{"sql": one.sql, "parameters": dict(span), "forms": _forms(one)} for one, span in parts]
        with contextlib.suppress(StoreError):
            self._apart.tell(self.path, {"do": "fetch_all", "asked": tasks})
            self._awaited.extend(map(_key, tasks))
            self._most = self._apart.most_bytes(self.path)

    def drain(self) -> None:
        """Take what was asked for ahead and is not taken yet: the next answer would be taken for it."""
        with contextlib.suppress(SkuwiseError):
            while self._awaited:
                self._take_next()

    def _take_next(self) -> None:
        """The next answer of those asked for ahead. Raises what it tells; then none of the others comes."""
        key = self._awaited.popleft()
        try:
            answer = self._ahead[key] = self._apart.answer(self.path, self._most)
        except BaseException:
            self._awaited.clear()
            raise
        self._most -= len(answer[1])

    def _taken_ahead(self, key: str) -> Answer | None:
        while key in self._awaited and key not in self._ahead:
            try:
                self._take_next()
            except StoreError:
                return None  # by itself it fails again, or not
        return self._ahead.pop(key, None)

    def ahead_of_rollups(self, asked: Sequence[Query]) -> None:
        """Have the devices read in one go whose rows the queries ask for."""
        from .stored_rows import rollup_of  # noqa: PLC0415

        rollups = [rollup_of(query) for query in asked]
        self.ahead([(stored.devices, {}) for stored in rollups if stored is not None])

    def _parts(self, query: Query, span: Parameters, only: Only | None) -> Sequence[tuple[Query, Parameters]]:
        from .stored_rows import rollup_of  # noqa: PLC0415

        stored = rollup_of(query)
        return [(query, span)] if stored is None else self._tables.parts(stored, span, only)

    def fetch(self, sql: str, parameters: Parameters | None = None) -> list[tuple[object, ...]]:
        """All rows of a SELECT of ours. What is no valid UTF-8 is shown as such."""
        return self._ask(sql, parameters, "").rows()

    def table(self, query: Query, parameters: Parameters, lost: Lost | None = None) -> pd.DataFrame:
        """All rows of a query of ours, as `to_table` gives them; `lost` counts what was not believed."""
        from ..resolution import concat  # noqa: PLC0415
        from ..tables import columns_to_table  # noqa: PLC0415

        stored = self.rollup(query, parameters, lost)
        if stored is not None:
            return concat(stored, query.columns)
        told = self.columns(query, parameters)
        try:
            return columns_to_table(told, query, lost)
        except (ValueError, IndexError) as error:
            raise self._apart.gave_up(self.path, "it returned invalid data") from error

    def tables(
        self,
        query: Query,
        parameters: Parameters,
        lost: Lost | None = None,
        *,
        only: Only | None = None,
    ) -> Sequence[pd.DataFrame]:
        """The same in several tables, in no order. `only`: of whom they are wanted; those of others may come, too."""
        stored = self.rollup(query, parameters, lost, only=only)
        return [self.table(query, parameters, lost)] if stored is None else stored

    def rollup(
        self,
        query: Query,
        parameters: Parameters,
        lost: Lost | None = None,
        *,
        only: Only | None = None,
    ) -> Sequence[pd.DataFrame] | None:
        """The rows of a view of rollups, from its tables; None for another query, or where they are not plain."""
        from .stored_rows import rollup_of  # noqa: PLC0415

        stored = rollup_of(query)
        return None if stored is None else self._tables.tables(stored, parameters, lost, only)

    def devices(self, stored: StoredRollup) -> Unpacked:
        """The devices of a rollup, as they came."""
        return self._tables.devices(stored)

    def sets_of_counts(self) -> Mapping[int, bytes]:
        """The counts of samples that rollups name, by id."""
        return self._tables.sets_of_counts()

    @cached_property
    def _tables(self) -> StoredTables:
        from .stored_rows import StoredTables  # noqa: PLC0415

        return StoredTables(self.columns)

    def columns(self, query: Query, parameters: Parameters) -> Unpacked:
        """The columns of a query of ours as they came: of the right kind, and not yet held against any range."""
        return self._ask(query.sql, parameters, _forms(query))

    def _ask(self, sql: str, parameters: Parameters | None, forms: str) -> Unpacked:
        from ..ipc_checks import Unpacked  # noqa: PLC0415

        task = {"sql": sql, "parameters": dict(parameters or {}), "forms": forms}
        told = self._taken_ahead(_key(task))
        if told is None:
            self.drain()
            told = self._apart.ask(self.path, {"do": "fetch", **task})
        head, body = told
        try:
            return Unpacked.of(head, body, forms)
        except ValueError as error:
            raise self._apart.gave_up(self.path, "it returned invalid data") from error


def _forms(query: Query) -> str:
    return "t" * len(query.text) + "n" * len(query.numbers) + "t" * len(query.bins)


def _key(task: Mapping[str, object]) -> str:
    return json.dumps(task, sort_keys=True)


class ReadingProcess:
    """Reads databases in a process apart. As a context the process is ended at its end.

    `bounds_for`: what reading a file of so many bytes on the disk may cost. `now`: a monotonic clock, s. For one
    thread.
    """

    def __init__(
        self,
        bounds_for: Callable[[int], Bounds] = bounds_of,
        *,
        now: Callable[[], float] = time.monotonic,
        command: tuple[str, ...] | None = None,
    ) -> None:
        self._bounds_for, self._now = bounds_for, now
        self._command = command or child_command(_MODULE)
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = False
        self._bounds: dict[Path, Bounds] = {}
        self._spent: dict[Path, float] = {}
        self._given_up: dict[Path, StoreError] = {}

    def __enter__(self) -> ReadingProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Begin the process, so that it is ready when it is asked. Raises StoreError."""
        if self._process is not None:
            return
        try:
            process = subprocess.Popen(  # noqa: S603 - our own module
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
            )
        except OSError as error:
            raise _no_process(error.strerror or str(error)) from error
        self._process, self._is_ready = process, False
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        # The usual 64 kB have the two wait for one another tens of times an answer.
        with contextlib.suppress(AttributeError, OSError):
            fcntl.fcntl(process.stdout.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def close(self) -> None:
        """End the process, whatever it is doing."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]
        # What waits for a disk that never answers cannot be ended; nobody waits for it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)

    def renew(self) -> None:
        """Begin anew: what earlier readings took, and files that were given up, no longer count."""
        self._bounds.clear()
        self._spent.clear()
        self._given_up.clear()

    @contextmanager
    def open(self, path: Path) -> Iterator[ProcessReader]:
        """A database, open as long as the context lasts. One at a time.

        Raises UsageError (no such file), NothingToDo (nothing in it yet), StoreError.
        """
        path = Path(path)
        there = disk_bytes(path)
        bounds = self._bounds.setdefault(path, self._bounds_for(there))
        share = asdict(replace(bounds, seconds=self._left(path) * _OWN_SHARE))
        task = {"do": "open", "path": str(path), "on_disk": there, "bounds": share}
        self.ask(path, task)
        reader = ProcessReader(self, path)
        try:
            yield reader
        finally:
            reader.drain()
            if self._process is not None and path not in self._given_up:
                with contextlib.suppress(OSError):
                    self._tell({"do": "close"})

    def ask(self, path: Path, task: Mapping[str, object]) -> Answer:
        """The answer to a task about a file, from whoever reads it. Raises what it tells, or StoreError."""
        self.tell(path, task)
        return self.answer(path, self.most_bytes(path))

    def tell(self, path: Path, task: Mapping[str, object]) -> None:
        """Give out a task about a file, whose answers are then to be taken. Raises StoreError."""
        if path in self._given_up:
            raise self._given_up[path]
        self._be_ready()
        with self._counted(path):
            self._tell(task)

    def answer(self, path: Path, most: int) -> Answer:
        """The next answer about a file, of `most` bytes. Raises what it tells, or StoreError."""
        if path in self._given_up:
            raise self._given_up[path]
        with self._counted(path):
            told = self._receive(self._now() + self._left(path), most)
        if "error" in told[0]:
            raise _told(path, told[0]["error"])
        return told

    def most_bytes(self, path: Path) -> int:
        """How much the answers about a file may give in all."""
        return self._bounds[path].given_bytes

    @contextmanager
    def _counted(self, path: Path) -> Iterator[None]:
        """Count the time as spent on a file, and give that up where the one who reads it fails."""
        begin = self._now()
        try:
            yield
        except TimeoutError:
            raise self.gave_up(path, f"reading takes longer than {self._bounds[path].seconds:.0f} s") from None
        except (OSError, EOFError):
            raise self.gave_up(path, f"the reading process {self._ending()}") from None
        except ValueError as error:
            raise self.gave_up(path, f"the reading process returned data that {error}") from error
        except BaseException:  # half an answer would be taken for the next one's
            self.close()
            raise
        finally:
            self._spent[path] = self._spent.get(path, 0.0) + self._now() - begin

    def gave_up(self, path: Path, why: str) -> StoreError:
        """Note that a file is not to be opened again, and end the process that read it."""
        self.close()
        self._given_up[path] = error = StoreError(f"{path} cannot be read: {why}.", _LEFT_OUT)
        return error

    def _left(self, path: Path) -> float:
        return self._bounds[path].seconds - self._spent.get(path, 0.0)

    def _be_ready(self) -> None:
        self.start()
        if self._is_ready:
            return
        try:
            head, _ = self._receive(self._now() + _START_SECONDS, 0)
        except (OSError, EOFError, ValueError) as error:
            self.close()
            raise _no_process("no answer") from error
        self._is_ready = "ready" in head

    def _tell(self, task: Mapping[str, object]) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(task).encode() + b"\n")

    def _receive(self, until: float, most: int) -> Answer:
        """A frame. Raises TimeoutError, EOFError, OSError, ValueError (it is none, or too large)."""
        head_bytes, body_bytes = FRAME.unpack(self._take(FRAME.size, until))
        if head_bytes > _MOST_HEAD_BYTES or body_bytes > most:
            raise ValueError("exceeds the size of the file")
        try:
            head = json.loads(bytes(self._take(head_bytes, until)))
        except (ValueError, RecursionError) as error:
            raise ValueError("is invalid") from error
        if not isinstance(head, dict):
            raise ValueError("is invalid")
        return head, self._take(body_bytes, until)

    def _take(self, count: int, until: float) -> memoryview:
        assert self._process is not None and self._process.stdout is not None
        stream = self._process.stdout.fileno()
        taken, into = 0, memoryview(bytearray(count))
        waiting = select.poll()
        waiting.register(stream, select.POLLIN)
        while taken < count:
            left = until - self._now()
            if left <= 0 or not waiting.poll(left * 1000):
                raise TimeoutError
            try:
                part = os.readv(stream, [into[taken:]])
            except BlockingIOError:
                continue
            if part == 0:
                raise EOFError
            taken += part
        return into

    def _ending(self) -> str:
        """How the process ended, as words."""
        status = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(_END_SECONDS)
        if status is not None and status < 0:
            with contextlib.suppress(ValueError):
                return f"was ended by {signal.Signals(-status).name}"
        return "ended"


def _told(path: Path, error: object) -> SkuwiseError:
    match error:
        case [str(kind), str(message), str(remedy)] if kind in _ERRORS:
            return _ERRORS[kind](message[:_MOST_TOLD], remedy[:_MOST_TOLD])
    return StoreError(f"{path} cannot be read: it returned invalid data.", _LEFT_OUT)


def _no_process(why: str) -> StoreError:
    return StoreError(
        f"The process that reads databases cannot be started: {why}.", "Check memory and load, then try again."
    )
