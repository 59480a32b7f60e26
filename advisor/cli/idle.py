"""``skuwise idle``: whether a workload, a node or a GPU has been idle for a while, for schedulers and scripts."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence

from ...rules.base.errors import EXIT_DONE, NothingToDo, UsageError
from ...rules.base.output import write_stdout
from ..core.naming import AmbiguousError, Named, matching, unknown
from ..core.timestamps import minute, rfc3339
from .options import duration
from .price_options import rulebook_of
from .watch_options import MARGIN_SECONDS, PAST_SECONDS, add_watched, watched_source

_EXITS = {"idle": EXIT_DONE, "busy": 4, "unknown": 5}
_WORDS = {"idle": "idle", "busy": "busy", "unknown": "not known"}
_MOST_SECONDS = 3 * 86400.0
_LEAST_SECONDS = 300.0

EXAMPLES = (
    "skuwise idle 4711 --db /var/lib/skuwise --longer-than 2h",
    "skuwise idle gpu-009 --prometheus http://localhost:9090 --longer-than 30m",
    "skuwise idle --db node.db --longer-than 1h --format json",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the options of idle."""
    parser.add_argument(
        "target", nargs="?", metavar="TARGET",
        help="workload, job number, pod, node or GPU UUID (default: all GPUs of the source)",
    )  # fmt: skip
    add_watched(parser)
    parser.add_argument(
        "--longer-than", type=duration, default=2 * 3600.0, metavar="DURATION",
        help="the time without use that counts as idle, 5m to 3d (default: 2h)",
    )  # fmt: skip
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format (default: text)")
    parser.epilog = "Exit status: 0 idle, 4 busy, 5 not known; 1, 2 and 3 are errors. It cancels nothing."


def run(options: argparse.Namespace) -> int:
    """Read the last hours, answer, and give the answer as the exit status."""
    from ...rules.policy.watch import load_watch_rules  # noqa: PLC0415
    from ..watch.fleet import Criteria  # noqa: PLC0415
    from ..watch.idle_answer import idle_answer, targets  # noqa: PLC0415
    from ..watch.reading import read_recent  # noqa: PLC0415
    from ..watch.settings import WatchSettings  # noqa: PLC0415

    if not _LEAST_SECONDS <= options.longer_than <= _MOST_SECONDS:
        raise UsageError("--longer-than is out of range.", "Use 5m to 3d.")
    now = time.time()
    book = rulebook_of(options, now)
    recent = read_recent(
        watched_source(options), book, lookback_seconds=options.longer_than + MARGIN_SECONDS, now=now,
        until=options.until, past_seconds=PAST_SECONDS,
    )  # fmt: skip
    every = targets(recent)
    names = [name for name in every if name is not None]
    found = _named(options.target, names) if options.target is not None else None
    criteria = Criteria(WatchSettings().limit_seconds, load_watch_rules(options.rules), book)
    answer = idle_answer(recent, every[found], options.longer_than, criteria)
    since, last = (rfc3339(ts) if ts is not None else None for ts in (answer.idle_since, answer.last_work))
    if options.format == "json":
        told = {
            "schema": "skuwise.idle/1", "target": options.target, "state": answer.state, "what": answer.what,
            "gpus": answer.gpu_count, "longer_than_seconds": options.longer_than,
            "idle_since": since, "last_work": last, "data_end": rfc3339(answer.data_end),
            "reason": {"code": answer.reason.code, "text": answer.reason.text, "fields": dict(answer.reason.fields)},
        }  # fmt: skip
        write_stdout(json.dumps(told, allow_nan=False) + "\n")
    else:
        last = f" Last activity: {minute(answer.last_work)}." if answer.last_work is not None else ""
        write_stdout(f"{_WORDS[answer.state]}: {answer.what}. {answer.reason.text}{last}\n")
    return _EXITS[answer.state]


def _named(asked: str, every: Sequence[Named]) -> Named:
    """What a name stands for; a node before its GPUs. Raises NothingToDo, AmbiguousError."""
    found = matching(asked, every)
    found = [one for one in found if one.what == "node"] or found
    if not found:
        error = unknown(asked, every, "in this source", "Run 'skuwise advise' to see names.")
        raise NothingToDo(error.message, error.remedy)  # nothing to work on, and no wrong usage
    if len(found) > 1:
        raise AmbiguousError(asked, found, lambda one: f"skuwise idle {one} ...")
    return found[0]
