"""``skuwise idle``: whether a workload, a node or a GPU has been idle for a while, for schedulers and scripts."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace

from click import argument, option

from ...rules.base.click_commands import command, format_option
from ...rules.base.errors import EXIT_DONE, NothingToDo, UsageError
from ...rules.base.output import write_stdout
from ..core.ids import Named
from ..core.timestamps import minute, rfc3339
from .options import DURATION, Telemetry, telemetry_options

# The exit status and the word of each state.
_STATES = {"idle": (EXIT_DONE, "idle"), "busy": (4, "busy"), "unknown": (5, "not known")}


@command(
    "skuwise idle 4711 --db /var/lib/skuwise --longer-than 2h",
    "skuwise idle gpu-009 --prometheus http://localhost:9090 --longer-than 30m",
    "skuwise idle --db node.db --longer-than 1h --format json",
)
@argument("target", required=False)
@telemetry_options(required=False, since=None)
@option(
    "--longer-than", type=DURATION, default="2h", help="time without use that counts as idle, 5m to 3d (default: 2h)"
)
@format_option("text", "json")
def idle(target: str | None, telemetry: Telemetry, longer_than: float, form: str) -> int:
    """Report whether a workload, node or GPU has been idle, for scripts.

    TARGET: workload, job number, pod, node or GPU UUID (default: all GPUs of the source).

    Exit status: 0 idle, 4 busy, 5 not known; 1, 2 and 3 are errors. It cancels nothing.
    """
    from ...rules.policy.thresholds import load_levels
    from ..core.advice_json import plain
    from ..watch.fleet import Criteria
    from ..watch.idle_answer import idle_answer, targets
    from ..watch.settings import WatchSettings

    if not 300 <= longer_than <= 3 * 86400:
        raise UsageError("--longer-than is out of range.", "Use 5m to 3d.")
    now = time.time()
    book = telemetry.rulebook.load(now)
    recent = replace(telemetry, source=telemetry.source.or_settings()).recent(book, now, longer_than)
    subjects = targets(recent)
    named = None if target is None else _named(target, [name for name in subjects if name is not None])
    criteria = Criteria(WatchSettings().limit_seconds, load_levels("watch.yaml", telemetry.rulebook.rules), book)
    answer = idle_answer(recent, subjects[named], longer_than, criteria)
    status, word = _STATES[answer.state]
    if form == "json":
        document = {"schema": "skuwise.idle/1", "target": target, "state": answer.state, "what": answer.what}
        document |= {"gpus": answer.gpu_count, "longer_than_seconds": longer_than, "reason": plain(answer.reason)}
        times = {"idle_since": answer.idle_since, "last_work": answer.last_work, "data_end": answer.data_end}
        document |= {name: None if at is None else rfc3339(at) for name, at in times.items()}
        write_stdout(json.dumps(document, allow_nan=False) + "\n")
    else:
        last = f" Last activity: {minute(answer.last_work)}." if answer.last_work is not None else ""
        write_stdout(f"{word}: {answer.what}. {answer.reason.text}{last}\n")
    return status


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
