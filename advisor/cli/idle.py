"""``skuwise idle``: whether a workload, a node or a GPU has been idle for a while, for schedulers and scripts."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from click import argument, option

from ...rules.base.click_commands import command, format_option
from ...rules.base.errors import EXIT_DONE, NothingToDo, UsageError
from ...rules.base.output import write_stdout
from ..api.answers import IDLE_MAX_SECONDS, IDLE_MIN_SECONDS
from ..core.ids import Named
from ..core.timestamps import minute, rfc3339
from .options import DURATION, Telemetry, telemetry_options

if TYPE_CHECKING:
    from ..watch.idle_answer import IdleAnswer

# The exit status and the word of each state.
_STATES = {"idle": (EXIT_DONE, "idle"), "busy": (4, "busy"), "unknown": (5, "not known")}


@command(
    "skuwise idle 4711 --db /var/lib/skuwise --longer-than 2h",
    "skuwise idle gpu-009 --prometheus http://localhost:9090 --longer-than 30m",
    "skuwise idle --db node.db --longer-than 1h --format json",
    "skuwise idle --each --db node.db --format json",
)
@argument("target", required=False)
@telemetry_options(required=False, since=None)
@option(
    "--longer-than", type=DURATION, default="2h", help="time without use that counts as idle, 5m to 3d (default: 2h)"
)
@option("--each", is_flag=True, help="answer for every workload, node and GPU of the source (needs --format json)")
@format_option("text", "json")
def idle(target: str | None, telemetry: Telemetry, longer_than: float, each: bool, form: str) -> int:
    """Report whether a workload, node or GPU has been idle, for scripts.

    TARGET: workload, job number, pod, node or GPU UUID (default: all GPUs of the source).

    Exit status: 0 idle (with --each: done), 4 busy, 5 not known; 1, 2 and 3 are errors. It cancels nothing.
    """
    from ...rules.policy.thresholds import load_levels
    from ..watch.fleet import Criteria
    from ..watch.idle_answer import idle_answers, targets
    from ..watch.settings import WatchSettings

    if not IDLE_MIN_SECONDS <= longer_than <= IDLE_MAX_SECONDS:
        raise UsageError("--longer-than is out of range.", "Use 5m to 3d.")
    if each and (target or form != "json"):
        raise UsageError("--each excludes a TARGET, and needs --format json.")
    now = time.time()
    book = telemetry.rulebook.load(now)
    recent = replace(telemetry, source=telemetry.source.or_settings()).recent(book, now, longer_than)
    subjects = targets(recent)
    names = [name for name in subjects if name is not None]
    asked = names if each else [None if target is None else _named(target, names)]
    criteria = Criteria(WatchSettings().limit_seconds, load_levels("watch.yaml", telemetry.rulebook.rules), book)
    answers = idle_answers(recent, [subjects[name] for name in asked], longer_than, criteria)
    if each:
        document = {"schema": "skuwise.idles/1", "generated_at": rfc3339(now), "data_end": rfc3339(recent.spans.end)}
        document |= {"longer_than_seconds": longer_than}
        of_names = [
            {
                "id": name.id,
                "kind": name.what if name.what in ("node", "GPU") else "workload",
                "name": name.name,
                "nodes": name.nodes,
                "jobs": name.jobs,
            }
            | _values(name.id.removeprefix("node:"), answer, longer_than)
            for name, answer in zip(names, answers, strict=True)
        ]
        write_stdout(json.dumps(document | {"answers": of_names}, allow_nan=False) + "\n")
        return EXIT_DONE
    (answer,) = answers
    status, word = _STATES[answer.state]
    if form == "json":
        document = {"schema": "skuwise.idle/1", **_values(target, answer, longer_than)}
        write_stdout(json.dumps(document, allow_nan=False) + "\n")
    else:
        last = f" Last activity: {minute(answer.last_work)}." if answer.last_work is not None else ""
        write_stdout(f"{word}: {answer.what}. {answer.reason.text}{last}\n")
    return status


def _values(target: str | None, answer: IdleAnswer, longer_than: float) -> dict[str, object]:
    from ..core.advice_json import plain

    times = {"idle_since": answer.idle_since, "last_work": answer.last_work, "data_end": answer.data_end}
    return {
        "target": target, "state": answer.state, "what": answer.what, "gpus": answer.gpu_count,
        "longer_than_seconds": longer_than, "reason": plain(answer.reason),
        **{name: None if at is None else rfc3339(at) for name, at in times.items()},
    }  # fmt: skip


def _named(target: str, names: Sequence[Named]) -> Named:
    """What a name stands for; a node before its GPUs. Raises NothingToDo, AmbiguousError."""
    from ..core.ids import AmbiguousError, matching, unknown

    matches = matching(target, names)
    matches = [name for name in matches if name.what == "node"] or matches
    if not matches:
        error = unknown(target, names, "in this source", "Run 'skuwise advise' to see names.")
        raise NothingToDo(error.message, error.remedy)  # nothing to work on, and no wrong usage
    if len(matches) > 1:
        raise AmbiguousError(target, matches, lambda id_: f"skuwise idle {id_} ...")
    return matches[0]
