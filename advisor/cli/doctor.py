"""``skuwise doctor``: what telemetry a source has, and how to add what is missing."""

import time

from ...rules.base.click_commands import command, format_option
from ...rules.base.errors import EXIT_DONE, NothingToDo
from ...rules.base.output import write_json
from .options import OutputOptions, Telemetry, telemetry_options


@command("skuwise doctor --db node.db", "skuwise doctor --prometheus http://localhost:9090")
@telemetry_options()
@format_option("table", "json")
def doctor(telemetry: Telemetry, form: str) -> int:
    """Report what telemetry a source has, and how to add what is missing."""
    from ..doctor.diagnose import diagnose, diagnosis_document, diagnosis_json

    now = time.time()
    book = telemetry.rulebook.load(now)
    frame, reasoned = telemetry.evaluate(book, now, keeps_rows=True)
    diagnosis = diagnose(frame, reasoned, book.catalog)
    if form == "json":
        write_json(diagnosis_json(diagnosis))
    else:
        OutputOptions("table").write(diagnosis_document(diagnosis))
    if not diagnosis.observed:
        raise NothingToDo(f"None of {diagnosis.advice.summary.gpu_count} GPUs is observed.", "Follow the gaps above.")
    return EXIT_DONE
