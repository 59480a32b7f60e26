"""``skuwise patch``: what a human applies for an accepted recommendation, and its undo. It applies nothing."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ...rules.base.errors import EXIT_DONE, UsageError
from ...rules.base.files import read_bounded
from ...rules.base.output import say, write_stdout, write_whole
from ...rules.base.sanitize import clean
from ...rules.base.typed_again import program
from .ledger.entries import add_id, find_entry

if TYPE_CHECKING:
    from ..state.ledger import LedgerEntry

_FILE_BYTES_MAX = 4 << 20
# Values of a change that may be typed: options of the same name.
_VALUES = (
    "kind", "name", "namespace", "container", "replicas", "node_label", "node", "flavor", "target_flavor", "partition",
    "feature", "mhz",
)  # fmt: skip

EXAMPLES = (
    "skuwise patch r-5603c79e --for kubernetes --manifest chat.yaml --output patch",
    "skuwise patch r-5603c79e --for slurm --manifest job.sh --partition l40s",
    "skuwise patch r-5603c79e --for kueue --manifest queue.yaml --undo",
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_id(parser)
    parser.add_argument(
        "--for", dest="target", required=True, choices=("kubernetes", "kueue", "slurm"),
        help="system that the patch is for",
    )  # fmt: skip
    parser.add_argument(
        "--manifest", type=Path, metavar="FILE",
        help="file to patch: a manifest (kubectl get -o yaml), which makes the undo exact, or a batch script",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, metavar="DIR", help="new folder for patch and undo (default: print)")
    parser.add_argument("--undo", action="store_true", help="print the undo instead of the patch")
    group = parser.add_argument_group("what the ledger may not know")
    group.add_argument("--kind", metavar="KIND", help="kind of the object on Kubernetes, as in Deployment")
    group.add_argument("--name", metavar="NAME", help="name of the object")
    group.add_argument("--namespace", metavar="NAME", help="its namespace")
    group.add_argument("--container", metavar="NAME", help="container that uses the GPU, without --manifest")
    group.add_argument("--replicas", type=_count, metavar="N", help="replicas now, without --manifest")
    group.add_argument(
        "--node-label", action="append", metavar="KEY=VALUE",
        help="label of the target's nodes; repeatable (default: the instance type of the cloud, else the GPU product)",
    )  # fmt: skip
    group.add_argument(
        "--node", action="append", metavar="NAME", help="node to cordon; repeatable (default: the nodes in the ledger)"
    )
    group.add_argument("--flavor", metavar="NAME", help="Kueue flavor that the workload has its GPUs from")
    group.add_argument("--target-flavor", metavar="NAME", help="Kueue flavor of the target's nodes")
    group.add_argument("--partition", metavar="NAME", help="Slurm partition of the target's nodes")
    group.add_argument("--feature", metavar="NAME", help="Slurm feature of the target's nodes, for --constraint")
    group.add_argument("--mhz", type=_count, metavar="MHZ", help="SM clock in MHz")


def run(options: argparse.Namespace) -> int:
    """Print a patch, or write it with its undo to a folder."""
    from ...rules.catalog.loader import load_catalog
    from ..patches.build import patch_for, with_head
    from ..patches.change import GivenFile

    _, entry = find_entry(options)
    _check_state(entry, options, time.time())
    typed = {name: getattr(options, name) for name in _VALUES}
    if options.manifest is not None:
        try:
            typed["manifest"] = GivenFile(options.manifest, read_bounded(options.manifest, _FILE_BYTES_MAX))
        except OSError as error:
            why = error.strerror or error
            raise UsageError(f"Cannot read {clean(options.manifest)}: {why}.", "Check --manifest.") from error
    made = patch_for(entry, options.target, load_catalog(), typed, f"{program()} {shlex.join(options.typed)}")
    check = f"{program()} ledger show {entry.recommendation.id}"
    if options.output is None:
        write_stdout(with_head(entry, made, check, undo=options.undo).text)
        return EXIT_DONE
    try:
        options.output.mkdir(parents=True)
    except OSError as error:
        why = f"{clean(options.output)}: {error.strerror}"
        raise UsageError(f"Cannot create the folder {why}.", "Set --output to a new folder.") from error
    for file in (with_head(entry, made, check, undo=undo) for undo in (False, True)):
        write_whole(options.output / file.name, file.text, into_devices=False)
    say(f"Patch and undo written to {clean(options.output)}; nothing was applied. In this folder: {clean(made.apply)}")
    return EXIT_DONE


def _check_state(entry: LedgerEntry, options: argparse.Namespace, now: float) -> None:
    """Raises UsageError where it was not accepted, or is done and no undo is asked for."""
    r, state = entry.recommendation, entry.decision(now).state
    who = f"{r.id} ({clean(r.action)} of {clean(entry.about)})"
    if r.blocked_by or entry.snapshot is None:
        raise UsageError(f"{who} cannot be patched: it is blocked.", f"Run '{program()} ledger show {r.id}'.")
    if state == "done" and not options.undo:
        raise UsageError(f"{who} is done already.", "Set --undo for what reverts it.")
    if state not in ("accepted", "done"):
        raise UsageError(f"{who} is {state}, not accepted.", f"Accept it first: {program()} ledger accept {r.id}")


def _count(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or not 0 < int(text[:7]) < 1_000_000 or len(text) > 6:
        raise argparse.ArgumentTypeError(f"{clean(text)!r} is not a whole number above 0.")
    return int(text)
