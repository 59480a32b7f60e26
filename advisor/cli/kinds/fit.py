"""``skuwise kinds fit``: a site's own correction of how kinds are told, from work that it labelled."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ....rules.base.errors import EXIT_DONE
from ....rules.base.output import say, write_output
from ....rules.base.sanitize import clean
from ....rules.models.kind_correction import CORRECTION_FILE, correction_document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...labelled.correction_fit import Fitted

EXAMPLES = ("skuwise kinds fit labeled --output kind_correction.yaml",)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "labelled", type=Path, metavar="DIR", help="folder with labels.csv and the labeled series or node databases"
    )
    parser.add_argument(
        "--rules", type=Path, metavar="RULES", help="folder of site rules, which override the built-in ones"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write to FILE instead of stdout, all or nothing")


def run(options: argparse.Namespace) -> int:
    """Judge what is labelled, fit, try it on what was left out, and write it down where it helps.

    Raises UsageError for labels that are wrong, and NothingToDo where there are too few or no correction helps.
    """
    from ...advise import load_rulebook  # noqa: PLC0415
    from ...labelled.correction_fit import fit_correction, usable  # noqa: PLC0415
    from ...labelled.judged import judged_folder  # noqa: PLC0415

    book = load_rulebook(options.rules, None, time.time(), with_correction=False)
    say("classifying labeled work ...")
    with tempfile.TemporaryDirectory() as scratch:
        examples, left = usable(
            judged_folder(options.labelled, Path(scratch), book, leave="judge"), book.kinds["idle_share_min"].value
        )
    for reason, count in left.items():
        say(f"{count} {'label is' if count == 1 else 'labels are'} not used: {reason}")
    fitted = fit_correction(examples, book.kind_model)
    for line in _told(fitted):
        say(clean(line))
    text = correction_document(fitted.correction)
    told = f"written to {{output}}; name it {CORRECTION_FILE} in a folder of rules and use it with --rules"
    write_output(text, options.output, told)
    return EXIT_DONE


def _told(fitted: Fitted) -> Iterator[str]:
    from ...verdicts.kinds.kinds import WORKING  # noqa: PLC0415

    correction = fitted.correction
    scores = correction.cross_validated
    yield (
        f"{correction.count} labeled workloads; leave-one-out accuracy {scores.right_after:.0%} instead of "
        f"{scores.right_before:.0%}, mean surprise {scores.loss_after:.2f} instead of {scores.loss_before:.2f}"
    )
    missing = [kind for kind in WORKING if kind not in correction.labels]
    if missing:
        yield f"no label of {', '.join(missing)}: their accuracy was not tested"
    for doubt in fitted.doubts:
        yield (
            f"doubtful label: {doubt.about} is labeled {doubt.labelled}; the other labels predict "
            f"{doubt.said} ({doubt.confidence:.2f})"
        )
