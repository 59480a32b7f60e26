"""``skuwise ledger trial``: one replica goes first, and the next advice compares it with the rest."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from ....rules.base.errors import EXIT_DONE, UsageError
from ....rules.base.output import say
from ....rules.base.sanitize import clean
from ....rules.base.typed_again import typed_with
from ...ledger.entries import LedgerEntry
from ...ledger.records import TRIAL_HOURS, EventFigures, Trial
from ...ledger.trials.start import basis_words, outlook
from ...moves.recommendation_kinds import KINDS
from .decisions import add_decision, decision_event, typed_text
from .entries import find_entry, open_ledgers

EXAMPLES = ("skuwise ledger trial r-5603c79e --replica chat-0",)


def configure(parser: argparse.ArgumentParser) -> None:
    add_decision(parser)
    parser.add_argument(
        "--replica", metavar="NAME", help="pod, node or ID of the replica (default: the one on the target)"
    )


def run(options: argparse.Namespace) -> int:
    """Note that a trial begins. What it came to is noted by later advice."""
    now = time.time()
    ledger, entry = find_entry(open_ledgers(options.ledger), options.id, typed_with(options, options.id))
    check_trial(entry, now)
    ground = entry.proposal.ground
    assert ground is not None
    expected = outlook(ground, typed_text(options.replica))
    if expected.refused is not None:
        reason = clean(expected.refused.text).removesuffix(expected.remedy).rstrip()
        raise UsageError(f"{entry.proposal.id} cannot be tried: {reason}", expected.remedy)
    for warning in expected.warnings:
        say(f"warning: {clean(warning.text)}")
    begun = decision_event("trial", now, options.by, None, options.why)
    trial = Trial(typed_text(options.replica))
    ledger.add(entry.proposal.id, replace(begun, figures=EventFigures(trial=trial)))
    who = f"Replica {trial.replica}" if trial.replica else "One replica"
    say(
        f"{entry.proposal.id} ({clean(entry.proposal.action)}, {clean(entry.proposal.about)}) is on trial. "
        f"{clean(who)} moves to {clean(entry.proposal.target_config)}; 'skuwise advise' compares it with the rest."
    )
    if expected.basis is not None:
        say(f"{basis_words(expected.basis)} A verdict needs {TRIAL_HOURS:.0f} h and comes within 7 days.")
    return EXIT_DONE


def check_trial(entry: LedgerEntry, now: float) -> None:
    """Raises UsageError where one replica cannot go first."""
    p, state = entry.proposal, entry.decision(now).state
    can_be_tried = [action for action, kind in KINDS.items() if kind.trial is not None]
    if p.action not in can_be_tried:
        raise UsageError(
            f"{p.id} is {p.action!r}: a single replica cannot move first.", f"A trial is for {', '.join(can_be_tried)}."
        )
    if p.ground is None or p.ground.time_ratio is None or p.ground.target.gpu_count == 0 or p.blocked:
        raise UsageError(
            f"{p.id} has no predicted time to compare a replica with.", f"Run 'skuwise ledger show {p.id}' for details."
        )
    if state in ("done", "expired"):
        raise UsageError(
            f"{p.id} is {state}: nothing is left to try.", "Run 'skuwise ledger list' for open recommendations."
        )
