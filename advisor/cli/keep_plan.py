"""``skuwise plan --keep``: the plan goes into the fleet's ledger, and is followed from then on."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ...rules.base.errors import NothingToDo, StoreError, UsageError
from ...rules.base.output import say
from ...rules.base.sanitize import clean
from ..core.formatting import counted

if TYPE_CHECKING:
    from ..core.advice_types import Advice
    from ..ledger.sync import LedgerSync
    from ..plan.result import Plan


def add_keep(parser: argparse.ArgumentParser) -> None:
    """The options that say whether and by whom a plan is kept."""
    keep = parser.add_argument_group("follow the plan")
    keep.add_argument(
        "--keep", nargs="?", const="", metavar="NAME",
        help="record the plan in the ledger and follow it: 'skuwise ledger plan' shows its progress; "
        "NAME is an optional label",
    )  # fmt: skip
    keep.add_argument("--accept", action="store_true", help="with --keep: accept the recommendations of its steps")
    keep.add_argument("--by", metavar="NAME", help="with --keep: name of the person (default: your user name)")


def check_keep(options: argparse.Namespace) -> None:
    """Raises UsageError for options that do not go together: before telemetry is read, which takes time."""
    if options.keep is None:
        if options.accept or options.by is not None:
            raise UsageError("--accept and --by need --keep.", "Add --keep.")
        return
    if options.no_ledger:
        raise UsageError("--keep needs a ledger.", "Remove --no-ledger.")
    asked = ((options.add, "--add"), (options.remove, "--remove"), (options.commit_ends, "--commit-ends"))
    other = [flag for given, flag in asked if given]
    if other:
        raise UsageError(
            f"A plan with {other[0]} is for another fleet than today's: it cannot be followed.",
            f"Remove {' and '.join(other)}, or remove --keep.",
        )


def keep_plan(options: argparse.Namespace, ledger: LedgerSync, plan: Plan, advice: Advice, now: float) -> None:
    """Record the plan. Its recommendations are in the ledger already. Raises NothingToDo where there is nothing to
    follow, StoreError where the ledger cannot be written."""
    from ..ledger.entries import LedgerEvent  # noqa: PLC0415
    from ..ledger.file.store import Ledger  # noqa: PLC0415
    from ..ledger.plan_beside import accepting, follow_plan  # noqa: PLC0415
    from ..ledger.plans.records import PlanEvent  # noqa: PLC0415
    from ..plan.keep import kept_plan  # noqa: PLC0415
    from ..views.document.plan_document import step_title  # noqa: PLC0415
    from ..views.titles import Titles  # noqa: PLC0415
    from .ledger.decisions import deciding_user, typed_text  # noqa: PLC0415

    if not plan.steps and not plan.returned:
        raise NothingToDo("The plan changes nothing: it was not kept.", "Run 'skuwise advise' for other savings.")
    own = ledger.of(advice.fleet)
    if own.path is None or advice.fleet is None:
        raise StoreError("The plan was not kept: no ledger.", "Use --ledger with a file that you can write.")
    by, titles = deciding_user(options.by), Titles(advice)
    known = {r.id: titles.of(r) for r in advice.recommendations}
    steps = {s.number: step_title(s, known) for s in plan.steps}
    kept = kept_plan(plan, advice, steps, now=now, by=by, name=typed_text(options.keep))
    entries = own.entries()
    accepted = (
        accepting(kept, entries, LedgerEvent("accepted", now, by, None, f"plan {kept.id}")) if options.accept else {}
    )
    file = Ledger(own.path)
    before = file.keep_plan(kept, PlanEvent("kept", now, by), accepted)
    more = f", instead of plan {before.id}" if before is not None else ""
    said = f"; {counted(len(accepted), 'recommendation')} accepted" if options.accept else ""
    say(f"plan {kept.id} is followed in {clean(str(own.path))}{more}{said}. Progress: skuwise ledger plan")
    follow_plan(file, advice, now, lambda _: None)
