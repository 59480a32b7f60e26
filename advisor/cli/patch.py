"""``skuwise patch``: what a human applies for an accepted recommendation, and its undo. It applies nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from click import argument, option

from ...rules.base.click_commands import FILE, FOLDER, Choice, command, typed_with
from ...rules.base.errors import EXIT_DONE, UsageError
from ...rules.base.files import read_bounded
from ...rules.base.output import program, say, write_stdout, write_whole
from ...rules.base.sanitize import clean
from .ledger import LedgerPlace, find_entry, place_options
from .options import number

if TYPE_CHECKING:
    from ..patches.change import Target
    from ..state.ledger import LedgerEntry

_FILE_BYTES_MAX = 4 << 20
_SYSTEMS = Choice(("kubernetes", "kueue", "slurm"))
_COUNT = number("N", "a whole number above 0", 1, 999_999, kind=int)


@command(
    "skuwise patch r-5603c79e --for kubernetes --manifest chat.yaml --output patch",
    "skuwise patch r-5603c79e --for slurm --manifest job.sh --partition l40s",
    "skuwise patch r-5603c79e --for kueue --manifest queue.yaml --undo",
)
@argument("recommendation", metavar="ID")
@place_options
@option("--for", "system", required=True, type=_SYSTEMS, help="system that the patch is for")
@option("--manifest", type=FILE, help="file to patch: a manifest (makes the undo exact) or a batch script")
@option("--output", type=FOLDER, help="new folder for patch and undo (default: print)")
@option("--undo", is_flag=True, help="print the undo instead of the patch")
@option("--kind", metavar="KIND", help="kind of the object on Kubernetes, as in Deployment")
@option("--name", metavar="NAME", help="name of the object")
@option("--namespace", metavar="NAME", help="its namespace")
@option("--container", metavar="NAME", help="container that uses the GPU, without --manifest")
@option("--replicas", type=_COUNT, help="replicas now, without --manifest")
@option("--node-label", multiple=True, metavar="KEY=VALUE", help="label of the target's nodes; repeatable")
@option("--node", multiple=True, metavar="NAME", help="node to cordon; repeatable (default: the nodes in the ledger)")
@option("--flavor", metavar="NAME", help="Kueue flavor that the workload has its GPUs from")
@option("--target-flavor", metavar="NAME", help="Kueue flavor of the target's nodes")
@option("--partition", metavar="NAME", help="Slurm partition of the target's nodes")
@option("--feature", metavar="NAME", help="Slurm feature of the target's nodes, for --constraint")
@option("--mhz", type=_COUNT, help="SM clock in MHz")
def patch(
    recommendation: str,
    place: LedgerPlace,
    system: Target,
    manifest: Path | None,
    output: Path | None,
    undo: bool,
    **values: object,
) -> int:
    """Print the change that an accepted recommendation needs, and its undo.

    ID: recommendation: its ID (4 characters or more), its workload or its node.

    The options from --kind on are for what the ledger may not know.
    """
    from ...rules.catalog.loader import load_catalog
    from ..patches.build import patch_for, with_head
    from ..patches.change import GivenFile

    _, accepted = find_entry(recommendation, place)
    _check_state(accepted, undo, time.time())
    if manifest is not None:
        try:
            values["manifest"] = GivenFile(manifest, read_bounded(manifest, _FILE_BYTES_MAX))
        except OSError as error:
            what = f"Cannot read {clean(manifest)}: {error.strerror or error}."
            raise UsageError(what, "Check --manifest.") from error
    made = patch_for(accepted, system, load_catalog(), values, typed_with())
    check = f"{program()} ledger show {accepted.recommendation.id}"
    if output is None:
        write_stdout(with_head(accepted, made, check, undo=undo).text)
        return EXIT_DONE
    try:
        output.mkdir(parents=True)
    except OSError as error:
        why = f"{clean(output)}: {error.strerror}"
        raise UsageError(f"Cannot create the folder {why}.", "Set --output to a new folder.") from error
    for file in (with_head(accepted, made, check, undo=is_undo) for is_undo in (False, True)):
        write_whole(output / file.name, file.text, into_devices=False)
    say(f"Patch and undo written to {clean(output)}; nothing was applied. In this folder: {clean(made.apply)}")
    return EXIT_DONE


def _check_state(entry: LedgerEntry, undo: bool, now: float) -> None:
    """Raises UsageError where it was not accepted, or is done and no undo is asked for."""
    r, state = entry.recommendation, entry.decision(now).state
    subject = f"{r.id} ({clean(r.action)} of {clean(entry.about)})"
    if r.blocked_by or entry.snapshot is None:
        raise UsageError(f"{subject} cannot be patched: it is blocked.", f"Run '{program()} ledger show {r.id}'.")
    if state == "done" and not undo:
        raise UsageError(f"{subject} is done already.", "Set --undo for what reverts it.")
    if state not in ("accepted", "done"):
        raise UsageError(f"{subject} is {state}, not accepted.", f"Accept it first: {program()} ledger accept {r.id}")
