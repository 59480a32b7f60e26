"""Answers to other programs: documents of skuwise's own commands, each made by a child process and read in pages."""

import math
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ...agent.base.self_command import child_command
from ...rules.base.errors import EXIT_DONE, EXIT_NOTHING, NothingToDo, SkuwiseError, UsageError, explained
from ...rules.base.output import say
from ...rules.base.sanitize import clean, quoted, suggest
from .store import ITEMS_MAX, PAGE_BYTES, Json, Stored, store

GOALS = ("cash", "nodes", "capacity", "energy")
IDLE_MIN_SECONDS, IDLE_MAX_SECONDS = 300.0, 3 * 86400.0
# A scheduler acts on an answer about idleness: the data behind it must be new.
_IDLE_OLDEST_SECONDS = 300.0
# After a child failed, its error answers for so long.
_FAILED_SECONDS = 30.0
_FRESH_SECONDS = 900.0
_DOCUMENTS = 16  # kept, those that were asked for last
FILTERS = ("workload", "rule", "node", "team", "action")
# Runs a skuwise command that prints into a file: its exit status, and what it printed on stderr.
Run = Callable[[Sequence[str], IO[bytes]], tuple[int, bytes]]


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
    """Answers from documents, each made when it is first asked for; an older one is made again while it still answers.
    A caller waits at most `patience_seconds` for one. `advice_file`: where another process writes the advice, again
    within `advice_seconds`. `page_bytes`: of an answer as JSON, at most.

    Every answer has `generated_at` of its document. All methods raise UsageError for what cannot be asked, NothingToDo
    for a name that there is not, NotReady, CommandError.
    """

    def __init__(
        self, options: CommandOptions, *, patience_seconds: float = 45.0, advice_file: Path | None = None,
        advice_seconds: float = _FRESH_SECONDS, page_bytes: int = PAGE_BYTES, clock: Callable[[], float] = time.time,
        run: Run | None = None,
    ) -> None:  # fmt: skip
        self._options, self._patience_seconds, self._page_bytes = options, patience_seconds, page_bytes
        self._advice_file, self._advice_seconds = advice_file, advice_seconds
        self._clock, self._run, self._lock = clock, run or self._run_child, threading.Lock()
        # One child at a time in each: a scheduler's question does not wait for a plan.
        self._slow, self._quick = ThreadPoolExecutor(1, "answers"), ThreadPoolExecutor(1, "quick-answers")
        self._stored: dict[tuple[str, ...], Stored] = {}
        self._running: dict[tuple[str, ...], Future[Stored]] = {}
        self._failed: dict[tuple[str, ...], float] = {}
        self._children: set[subprocess.Popen[bytes]] = set()
        self._is_closed = False

    def close(self) -> None:
        """End the children."""
        self._is_closed = True
        pools = (self._slow, self._quick)
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        for child in [*self._children]:
            child.terminate()
        for pool in pools:
            pool.shutdown()

    def summary(self) -> Json:
        """The advice without its lists: `summary`, `source`, `window`, the first `notes`, and the number of items in
        each of `sections`."""
        advice = self._advice()
        return _bounded(advice, advice.head() | {"notes": advice.page("notes", limit=20)["notes"]})

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
        workloads = advice.related("workloads", "id", [workload]) if workload else []
        keys = {"workloads": "workload", "findings": "finding", "recommendations": "id"}
        of, values = keys[section], item["findings"][:ITEMS_MAX] if section == "recommendations" else [item["id"]]
        answer: Json = {"subject": section.removesuffix("s"), "id": item["id"], "workload": next(iter(workloads), None)}
        for name in ("findings", "recommendations"):
            answer[name] = [item] if name == section else advice.related(name, of, values)
        head = advice.head()
        return _bounded(advice, {"generated_at": head["generated_at"], "window": head["window"], **answer})

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
        head = {"schema": "skuwise.idle/1", "generated_at": idles.head()["generated_at"]}
        return _bounded(idles, {**head, **answer, "target": target})

    def job(self, id_: str) -> Json:
        """The card of a job; of one that ran several times that of the newest run."""
        cards = self._document("job", "--no-keep")
        _, card = _single(id_, cards, _newest_run(cards.find(id_, "cards")))
        return _bounded(cards, card)

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
        return self._document("advise", fresh_seconds=self._advice_seconds, file=self._advice_file)

    def _document(
        self, *words: str, fresh_seconds: float = _FRESH_SECONDS, oldest_seconds: float = math.inf,
        file: Path | None = None,
    ) -> Stored:  # fmt: skip
        """The document of a command; that in `file` where it is fresh. Raises NotReady, CommandError."""
        with self._lock:
            stored, running, now = self._stored.get(words), self._running.get(words), self._clock()
            made_at = -math.inf if stored is None else stored.made_at
            written_at = file.stat().st_mtime if file is not None and file.exists() else -math.inf
            is_free = running is None or (running.done() and now - self._failed.get(words, -math.inf) > _FAILED_SECONDS)
            if is_free and (now - made_at > fresh_seconds or written_at > made_at):
                pool = self._quick if words[0] in ("idle", "incidents") else self._slow
                running = pool.submit(self._make, words, file if now - written_at <= fresh_seconds else None)
                self._running[words] = running
            if stored is not None and now - made_at <= oldest_seconds:
                self._stored[words] = self._stored.pop(words)  # the last of those that are dropped
                return stored
        assert running is not None
        try:
            stored = running.result(self._patience_seconds)
        except TimeoutError:
            stored = None
        if stored is None or self._clock() - stored.made_at > oldest_seconds:
            raise NotReady("The answer is being computed.", "Ask again in a minute.")
        return stored

    def _make(self, words: tuple[str, ...], file: Path | None) -> Stored:
        try:
            stored = self._read(words) if file is None else store(file, file.stat().st_mtime, self._page_bytes)
        except Exception as error:
            self._failed[words] = self._clock()
            say(f"no answers of {words[0]}: {clean(str(error))}")
            raise explained(error) or error from error
        with self._lock:
            self._stored[words] = stored
            for old in [*self._stored][:-_DOCUMENTS]:
                del self._stored[old]
                self._running.pop(old, None)  # it may end only now, and be stored once more
        return stored

    def _read(self, words: tuple[str, ...]) -> Stored:
        made_at = self._clock()
        with tempfile.NamedTemporaryFile(prefix="skuwise-answers-") as output:
            options = self._options.of(words[0])
            status, errors = self._run((*words, *options, "--format", "json"), output)
            path = Path(output.name)
            if status not in (EXIT_DONE, EXIT_NOTHING) or not path.stat().st_size:
                raise _failure(words[0], status, errors)
            return store(path, made_at, self._page_bytes)

    def _run_child(self, words: Sequence[str], output: IO[bytes]) -> tuple[int, bytes]:
        command = child_command("skuwise", *words)
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE)  # noqa: S603
        self._children.add(child)
        if self._is_closed:  # while it was started
            child.terminate()
        _, errors = child.communicate()
        self._children.discard(child)
        return child.returncode, errors


def _failure(name: str, status: int, errors: bytes) -> SkuwiseError:
    """The error of a command by what it printed; with exit status 3 there is nothing to answer from."""
    _, mark, sentence = f"\n{errors.decode('utf-8', 'replace')}".rpartition("\nskuwise: ")
    if not mark:
        sentence = f"'skuwise {name}' ended with status {status}."
    return NothingToDo(sentence.strip()) if status == EXIT_NOTHING else CommandError(sentence.strip())


def _single(asked: str, stored: Stored, matches: Sequence[tuple[str, Json]]) -> tuple[str, Json]:
    """The only match of a name. Raises NothingToDo, UsageError."""
    if not matches:
        near = suggest(asked, stored.names())
        raise NothingToDo(f"No match for {quoted(asked)}.", near or "Use an ID, a job ID, a pod, a name or a node.")
    if len(matches) > 1:
        names = ", ".join(item["id"] for _, item in matches[:10])
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
    return _bounded(stored, stored.head()) if section is None else stored.page(section, after, limit)


def _bounded(stored: Stored, answer: Json) -> Json:
    """The answer; one that is longer than a page is shortened, and says where."""
    cut = stored.shorten(answer)
    return {**answer, "shortened": cut} if cut else answer
