"""``skuwise patch``: what a human applies for an accepted recommendation, and its undo. It applies nothing."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ...rules.base.errors import EXIT_DONE, SkuwiseError, UsageError
from ...rules.base.files import read_bounded
from ...rules.base.output import say, write_stdout, write_whole
from ...rules.base.sanitize import clean
from ...rules.base.typed_again import program, typed_with
from .ledger.entries import add_id, find_entry, open_ledgers

if TYPE_CHECKING:
    from ..ledger.entries import LedgerEntry
    from ..patches.model import PatchFile, PatchSet
    from ..patches.subject import Asked, GivenFile

_FILE_BYTES_MAX = 4 << 20

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
        "--manifest", type=Path, action="append", default=[], metavar="FILE",
        help="file to patch, which makes the undo exact: a manifest (kubectl get -o yaml) or a batch script; "
        "repeatable for Slurm",
    )  # fmt: skip
    parser.add_argument(
        "--output", type=Path, metavar="DIR",
        help="new folder for patch, undo, README.txt and, for Kubernetes, kustomization.yaml (default: print the "
        "patch)",
    )  # fmt: skip
    parser.add_argument("--undo", action="store_true", help="print the undo instead of the patch")
    group = parser.add_argument_group("what the ledger may not know")
    group.add_argument("--kind", metavar="KIND", help="kind of the Kubernetes object, as in Deployment")
    group.add_argument("--name", metavar="NAME", help="name of the Kubernetes object")
    group.add_argument("--namespace", metavar="NAME", help="namespace of the Kubernetes object")
    group.add_argument("--container", metavar="NAME", help="container that uses the GPU, without --manifest")
    group.add_argument("--replicas", type=_count, metavar="N", help="replicas now, without --manifest")
    group.add_argument(
        "--node-label", action="append", default=[], metavar="KEY=VALUE",
        help="label of the target's nodes; repeatable (default: the instance type of the cloud, else the GPU product)",
    )  # fmt: skip
    group.add_argument(
        "--node", action="append", default=[], metavar="NAME",
        help="node to cordon; repeatable (default: the nodes in the ledger)",
    )  # fmt: skip
    group.add_argument("--flavor", metavar="NAME", help="Kueue flavor that the workload has its GPUs from")
    group.add_argument(
        "--target-flavor", metavar="NAME", help="Kueue flavor of the target's nodes (default: a new one, by their type)"
    )
    group.add_argument("--partition", metavar="NAME", help="Slurm partition of the target's nodes")
    group.add_argument("--feature", metavar="NAME", help="Slurm feature of the target's nodes, for --constraint")
    group.add_argument("--mhz", type=_count, metavar="MHZ", help="SM clock in MHz")


def run(options: argparse.Namespace) -> int:
    """Print a patch, or write it with its undo to a folder."""
    from ...rules.catalog.loader import load_catalog  # noqa: PLC0415 - read where it is needed
    from ..patches.build import patch_for  # noqa: PLC0415
    from ..patches.subject import Subject  # noqa: PLC0415

    _, entry = find_entry(open_ledgers(options.ledger), options.id, typed_with(options, options.id))
    _check_state(entry, options, time.time())
    assert entry.proposal.ground is not None
    subject = Subject(entry, entry.proposal.ground, load_catalog(), _asked(options))
    patches = patch_for(subject, options.target)
    check = f"{program()} ledger show {entry.proposal.id}"
    files = _with_heads(entry, patches, check)
    if options.output is None:
        shown = [undo if options.undo else patch for patch, undo in files]
        separator = "---\n" if shown[0].name.endswith(".yaml") else "\n"
        write_stdout(separator.join(one.text for one in shown))
    else:
        _write(options.output, entry, patches, files, check)
    return EXIT_DONE


def _check_state(entry: LedgerEntry, options: argparse.Namespace, now: float) -> None:
    """Raises UsageError where it was not accepted, or is done and no undo is asked for."""
    p, state = entry.proposal, entry.decision(now).state
    who = f"{p.id} ({clean(p.action)} of {clean(p.about)})"
    if p.blocked or p.ground is None:
        raise UsageError(f"{who} cannot be patched: it is blocked.", f"Run '{program()} ledger show {p.id}'.")
    if state == "done" and not options.undo:
        raise UsageError(f"{who} is done already.", "Set --undo for what reverts it.")
    if state not in ("accepted", "done"):
        raise UsageError(f"{who} is {state}, not accepted.", f"Accept it first: {program()} ledger accept {p.id}")


def _with_heads(entry: LedgerEntry, patches: PatchSet, check: str) -> list[tuple[PatchFile, PatchFile]]:
    from ..patches.build import head_of, with_head  # noqa: PLC0415

    return [
        (
            with_head(part.patch, head_of(entry, part, patches.notes, check, undo=False)),
            with_head(part.undo, head_of(entry, part, patches.notes, check, undo=True)),
        )
        for part in patches.parts
    ]


def _write(
    folder: Path, entry: LedgerEntry, patches: PatchSet, files: list[tuple[PatchFile, PatchFile]], check: str
) -> None:
    """Everything into a folder that was not there, or is empty. Raises UsageError where it has files already."""
    from ..patches.build import readme  # noqa: PLC0415

    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = any(folder.iterdir())
    except OSError as error:
        raise SkuwiseError(f"Cannot write to {clean(folder)}: {error.strerror}.", "Name another folder.") from error
    if taken:
        raise UsageError(f"The folder {clean(folder)} is not empty.", "Set --output to a new folder.")
    more = [*patches.originals, *patches.more, readme(entry, patches, check)]
    whole = [*(one for pair in files for one in pair), *more]
    if len({one.name for one in whole}) < len(whole):  # one would replace another
        raise SkuwiseError("Two files of this patch have the same name.", "Patch one object at a time.")
    for file in whole:
        write_whole(folder / file.name, file.text, into_devices=False)
    count = len(patches.parts)
    say(f"{count} {'patch' if count == 1 else 'patches'} with undo written to {clean(folder)}; nothing was applied.")


def _asked(options: argparse.Namespace) -> Asked:
    """The options as values; what names something is checked as soon as it is used."""
    from ..patches.names import label_of  # noqa: PLC0415
    from ..patches.subject import Asked  # noqa: PLC0415

    labels = []
    for text in options.node_label:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"Invalid node label {clean(text)!r}.", "Use KEY=VALUE.")
        labels.append(label_of(key, value))
    return Asked(
        manifests=tuple(_given(path) for path in options.manifest),
        kind=options.kind, name=options.name, namespace=options.namespace, container=options.container,
        replicas=options.replicas, node_labels=tuple(labels), nodes=tuple(options.node), partition=options.partition,
        feature=options.feature, flavor=options.flavor, target_flavor=options.target_flavor, megahertz=options.mhz,
    )  # fmt: skip


def _given(path: Path) -> GivenFile:
    from ..patches.subject import GivenFile  # noqa: PLC0415

    try:
        return GivenFile(path, read_bounded(path, _FILE_BYTES_MAX))
    except OSError as error:
        raise UsageError(f"Cannot read {clean(path)}: {error.strerror or error}.", "Check --manifest.") from error


def _count(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or not 0 < int(text[:7]) < 1_000_000 or len(text) > 6:
        raise argparse.ArgumentTypeError(f"{clean(text)!r} is not a whole number above 0.")
    return int(text)
