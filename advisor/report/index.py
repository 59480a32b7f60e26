"""Which files of a preview are whose: a file's name does not say it of every team."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from ..render.formats.csv import cell

INDEX_FILE = "index.csv"


def preview_index(teams: Sequence[str], names: Sequence[str]) -> str:
    """Each team with its mail and its page, as CSV. `names`: of the files, without their endings.

    The fleet's report has the team "".
    """
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(("team", "mail", "page"))
    writer.writerows((cell(team), f"{name}.eml", f"{name}.html") for team, name in zip(teams, names, strict=True))
    return out.getvalue()
