"""``skuwise doctor``: what a source can tell, and what would make the advice on it better."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from ...rules.base.errors import EXIT_DONE, NothingToDo
from ...rules.base.output import say, write_json, write_stdout
from .options import add_source
from .output import EVALUATING, cores, reading_telemetry, terminal_width, wants_color
from .price_options import rulebook_of
from .source_options import source_of

EXAMPLES = ("skuwise doctor --db node.db", "skuwise doctor --prometheus http://localhost:9090")


def configure(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the options of doctor."""
    add_source(parser)
    parser.add_argument("--format", choices=("table", "json"), default="table", help="output format (default: table)")


def run(options: argparse.Namespace) -> int:
    """Read and judge as `advise` does, diagnose, print. Raises NothingToDo where no GPU is observed, with what is known
    of it."""
    from ..advise import read_and_reason  # noqa: PLC0415
    from ..doctor.diagnose import diagnose  # noqa: PLC0415
    from ..doctor.page import diagnosis_document, diagnosis_json  # noqa: PLC0415
    from ..show.writers.text import document_text  # noqa: PLC0415

    now = time.time()
    book, source = rulebook_of(options, now), source_of(options, say, cores())
    with reading_telemetry(options) as reading:
        frame, reasoned = read_and_reason(
            replace(source, steps=reading.step), book, since=options.since, until=options.until, now=now,
            read=lambda: reading.stage(EVALUATING), keeps_rows=True,
        )  # fmt: skip
    found = diagnose(frame, reasoned, book.catalog)
    if options.format == "json":
        write_json(diagnosis_json(found))
    else:
        write_stdout(document_text(diagnosis_document(found), width=terminal_width(), color=wants_color()))
    if not found.observed:
        raise NothingToDo(f"None of {found.advice.summary.gpu_count} GPUs is observed.", "Follow the gaps above.")
    return EXIT_DONE
