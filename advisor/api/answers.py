"""Answers to other programs: documents of skuwise's own commands, each made by a child process and read in pages."""

import math
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from ...agent.base.self_command import child_command
from ...rules.base.errors import EXIT_DONE, EXIT_NOTHING, NothingToDo, SkuwiseError, UsageError, explained
from ...rules.base.output import say
from ...rules.base.sanitize import clean, quoted, suggest
from .store import ITEMS_BYTES, ITEMS_MAX, Json, Stored, shorten, store

GOALS = ("cash", "nodes", "capacity", "energy")
IDLE_MIN_SECONDS, IDLE_MAX_SECONDS = 300.0, 3 * 86400.0
# A scheduler acts on an answer about idleness: what it was told must still hold.
_IDLE_OLDEST_SECONDS = 300.0
# After a child failed, its error answers for so long.
_FAILED_SECONDS = 30.0
_CHILDREN, _DOCUMENTS = 2, 16  # at once; kept
_READ_SECONDS = 60.0
FILTERS = ("workload", "rule", "node", "team", "action")
_LISTED = 10


class NotReady(SkuwiseError):  # noqa: N818 - nothing failed
    """The document is being made; ask again."""


class CommandError(SkuwiseError):
    """The command that makes a document failed: its sentence."""


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """Options of the commands, fixed at the start: no caller sets any. `window`: --since and --until, `until`: the
    latter alone."""

    source: tuple[str, ...]
    window: tuple[str, ...] = ()
    until: tuple[str, ...] = ()
    rulebook: tuple[str, ...] = ()
    state: tuple[str, ...] = ()

    def of(self, name: str) -> tuple[str, ...]:
        """Those of the command `name`."""
        groups = {
            "incidents": (self.state,),
            "idle": (self.source, self.until, self.rulebook),
            "doctor": (self.source, self.window, self.rulebook),
        }
        every = (self.source, self.window, self.rulebook, self.state)
        return tuple(word for group in groups.get(name, every) for word in group)


class Answers:
    """Answers from documents, each made when it is first asked for; one older than `fresh_seconds` is made again while
    it still answers. A caller waits at most `patience_seconds` for one. `advice_file`: where another process writes the
    advice, again within `advice_seconds`.

    Every answer has `generated_at` of its document. All methods raise UsageError for what cannot be asked, NothingToDo
    for a name that there is not, NotReady, CommandError.
    """

    def __init__(
        self, options: CommandOptions, *, patience_seconds: float = 45.0, fresh_seconds: float = 900.0,
        advice_file: Path | None = None, advice_seconds: float = 900.0, clock: Callable[[], float] = time.time,
        command: Callable[..., Sequence[str]] = child_command,
    ) -> None:  # fmt: skip
        self._options, self._patience_seconds, self._fresh_seconds = options, patience_seconds, fresh_seconds
        self._advice_file, self._advice_seconds, self._clock, self._command = (
            advice_file,
            advice_seconds,
            clock,
            command,
        )
        self._folder = tempfile.TemporaryDirectory(prefix="skuwise-answers-")
        self._numbers, self._lock = count(1), threading.Lock()
        self._pool = ThreadPoolExecutor(_CHILDREN, "answers")
        self._stored: dict[tuple[str, ...], Stored] = {}
        self._running: dict[tuple[str, ...], Future[Stored]] = {}
        self._failed: dict[tuple[str, ...], float] = {}
        self._replaced: dict[Path, float] = {}
        self._children: set[subprocess.Popen[bytes]] = set()
        self._is_closed = False

    def close(self) -> None:
        """End the children, and remove the documents."""
        self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        for child in [*self._children]:
            child.terminate()
        self._pool.shutdown(wait=True)
        self._folder.cleanup()

    def summary(self) -> Json:
        """The advice without its lists: `summary`, `source`, `window`, the first `notes`, and the number of items in
        each of `sections`."""
        advice = self._advice()
        return _bounded(advice.head() | {"notes": advice.page("notes", limit=20)["notes"]})

    def section(self, name: str, *, after: str = "", limit: int = 50, **filters: str | None) -> Json:
        """A page of a list of the advice. `filters`: workload (id), rule, node, team, action."""
        for unknown in filters.keys() - set(FILTERS):
            raise UsageError(f"Unknown filter {quoted(unknown)}.", f"Use one of: {', '.join(FILTERS)}.")
        return self._advice().page(name, after, limit, **filters)

    def explain(self, asked: str) -> Json:
        """The workload, finding or recommendation of a name, with those that it belongs to."""
        advice = self._advice()
        matches = advice.find(asked, "workloads", "findings", "recommendations")
        section, item = _single(asked, advice, _newest_run(matches))
        workload = item["id"] if section == "workloads" else item["workload"]
        answer: Json = {"subject": section.removesuffix("s"), "id": item["id"], "workload": None}
        for related in advice.related("workloads", "id", [workload]) if workload else ():
            answer["workload"] = related
        match section:
            case "workloads":
                answer["findings"] = advice.related("findings", "workload", [workload])
                answer["recommendations"] = advice.related("recommendations", "workload", [workload])
            case "findings":
                answer["findings"] = [item]
                answer["recommendations"] = advice.related("recommendations", "finding", [item["id"]])
            case _:
                answer["findings"] = advice.related("findings", "id", item["findings"][:ITEMS_MAX])
                answer["recommendations"] = [item]
        head = advice.head()
        return _bounded({"generated_at": head["generated_at"], "window": head["window"], **answer})

    def idle(self, target: str, longer_than_seconds: float) -> Json:
        """Whether a workload, a node or a GPU has been idle for so long; of data read at most 300 s ago."""
        if not IDLE_MIN_SECONDS <= longer_than_seconds <= IDLE_MAX_SECONDS:
            raise UsageError("longer_than is out of range.", "Use 5m to 3d.")
        span = f"{round(longer_than_seconds)}s"
        words = ("idle", "--each", "--longer-than", span)
        idles = self._document(*words, fresh_seconds=60.0, oldest_seconds=_IDLE_OLDEST_SECONDS)
        matches = idles.find(target, "answers")
        nodes = [match for match in matches if match[1]["kind"] == "node"]
        _, answer = _single(target, idles, nodes or matches)
        answer = {name: part for name, part in answer.items() if name not in ("id", "kind", "name", "nodes", "jobs")}
        head = idles.head()
        return _bounded({"schema": "skuwise.idle/1", "generated_at": head["generated_at"], **answer, "target": target})

    def job(self, id_: str) -> Json:
        """The card of a job; of one that ran several times that of the newest run."""
        cards = self._document("job", "--no-keep")
        _, card = _single(id_, cards, _newest_run(cards.find(id_, "cards")))
        return _bounded(card)

    def incidents(self, *, after: str = "", limit: int = 50) -> Json:
        """A page of the open incidents, the most severe and expensive first."""
        incidents = self._document("incidents", "list", fresh_seconds=15.0, oldest_seconds=_IDLE_OLDEST_SECONDS)
        return incidents.page("incidents", after, limit)

    def plan(self, goal: str = "cash", section: str | None = None, *, after: str = "", limit: int = 50) -> Json:
        """The plan for a goal without its lists, or a page of one of these."""
        if goal not in GOALS:
            raise UsageError(f"Unknown goal {quoted(goal)}.", f"Use one of: {', '.join(GOALS)}.")
        return _head_or_page(self._document("plan", "--goal", goal), section, after, limit)

    def doctor(self, section: str | None = None, *, after: str = "", limit: int = 50) -> Json:
        """What telemetry there is and what is missing, without its lists, or a page of one of these."""
        return _head_or_page(self._document("doctor"), section, after, limit)

    def _advice(self) -> Stored:
        return self._document("advise", fresh_seconds=self._advice_seconds)

    def _document(self, *words: str, fresh_seconds: float | None = None, oldest_seconds: float = math.inf) -> Stored:
        """The document of a command. `fresh_seconds` None: that of this program. Raises NotReady, CommandError."""
        fresh_seconds = self._fresh_seconds if fresh_seconds is None else fresh_seconds
        with self._lock:
            stored, running, now = self._stored.get(words), self._running.get(words), self._clock()
            age = math.inf if stored is None else now - stored.made_at
            is_free = running is None or (running.done() and now - self._failed.get(words, -math.inf) > _FAILED_SECONDS)
            if is_free and (age > fresh_seconds or self._advice_since(words, stored)):
                running = self._running[words] = self._pool.submit(self._make, words)
        if stored is not None and age <= oldest_seconds:
            return stored
        assert running is not None
        try:
            stored = running.result(self._patience_seconds)
        except TimeoutError:
            stored = None
        if stored is None or self._clock() - stored.made_at > oldest_seconds:
            raise NotReady("The answer is being computed.", "Ask again in a minute.")
        return stored

    def _advice_since(self, words: tuple[str, ...], stored: Stored | None) -> float | None:
        """When the file of the advice was written (Unix seconds), where it is newer than what is stored."""
        with suppress(OSError):
            if self._advice_file is not None and words == ("advise",):
                written = self._advice_file.stat().st_mtime
                return written if stored is None or written > stored.made_at else None
        return None

    def _make(self, words: tuple[str, ...]) -> Stored:
        try:
            stored = self._read(words)
        except Exception as error:
            self._failed[words] = self._clock()
            say(f"no answers of {words[0]}: {clean(str(error))}")
            raise explained(error) or error from error
        with self._lock:
            documents = {**self._stored, words: stored}
            newest = sorted(documents, key=lambda key: documents[key].made_at)[-_DOCUMENTS:]
            replaced = {*self._stored.values()} - {documents[key] for key in newest}
            self._stored = {key: documents[key] for key in newest}
            # An answer that began before may still read them.
            self._replaced |= {document.path: self._clock() for document in replaced}
            for path in [path for path, at in self._replaced.items() if self._clock() - at > _READ_SECONDS]:
                path.unlink()
                del self._replaced[path]
        return stored

    def _read(self, words: tuple[str, ...]) -> Stored:
        """The document of a command, of the advice that of the file where it is fresh."""
        version = f"{next(self._numbers)}-{os.urandom(4).hex()}"
        path = Path(self._folder.name) / version
        written = self._advice_since(words, self._stored.get(words))
        if written is not None and self._advice_file is not None and self._clock() - written <= self._advice_seconds:
            return store(self._advice_file, path, version, written)
        made_at, options = self._clock(), self._options.of(words[0])
        output = path.with_suffix(".json")
        try:
            with output.open("wb") as file:
                child = subprocess.Popen(  # noqa: S603 - our own command
                    self._command("skuwise", words[0], *words[1:], *options, "--format", "json"),
                    stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE,
                )  # fmt: skip
                self._children.add(child)
                if self._is_closed:  # while it was started
                    child.terminate()
                _, errors = child.communicate()
                self._children.discard(child)
            if child.returncode not in (EXIT_DONE, EXIT_NOTHING) or not output.stat().st_size:
                raise _failure(words[0], child.returncode, errors)
            return store(output, path, version, made_at)
        finally:
            output.unlink(missing_ok=True)


def _failure(name: str, status: int, errors: bytes) -> SkuwiseError:
    """The error of a command by what it printed; with exit status 3 there is nothing to answer from."""
    _, mark, sentence = errors.decode("utf-8", "replace").rpartition("skuwise: ")
    if not mark:
        sentence = f"'skuwise {name}' ended with status {status}."
    return NothingToDo(sentence.strip()) if status == EXIT_NOTHING else CommandError(sentence.strip())


def _single(asked: str, stored: Stored, matches: Sequence[tuple[str, Json]]) -> tuple[str, Json]:
    """The only match of a name. Raises NothingToDo, UsageError."""
    if not matches:
        near = suggest(asked, stored.names())
        raise NothingToDo(f"No match for {quoted(asked)}.", near or "Use an ID, a job ID, a pod, a name or a node.")
    if len(matches) > 1:
        names = ", ".join(item["id"] for _, item in matches[:_LISTED])
        raise UsageError(f"{quoted(asked)} matches {len(matches)} items.", f"Use one of: {names}.")
    return matches[0]


def _newest_run(matches: Sequence[tuple[str, Json]]) -> Sequence[tuple[str, Json]]:
    """Of the runs of one job the newest; other matches as they are."""

    def job_of(item: Json) -> tuple[object, object]:
        scheduler = item.get("scheduler")
        return item.get("cluster"), (scheduler if isinstance(scheduler, dict) else item).get("job_id") or item["id"]

    if len({job_of(item) for _, item in matches}) != 1:
        return matches
    return [max(matches, key=lambda match: match[1].get("start") or "")]


def _head_or_page(stored: Stored, section: str | None, after: str, limit: int) -> Json:
    return _bounded(stored.head()) if section is None else stored.page(section, after, limit)


def _bounded(answer: Json) -> Json:
    """The answer; one that is longer than a page is shortened, and says where."""
    cut = shorten(answer, ITEMS_BYTES)
    return {**answer, "shortened": cut} if cut else answer
