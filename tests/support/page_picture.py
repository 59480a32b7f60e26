"""Opens the screens over a server without a terminal and saves their first page, as SVG and as text.

python -m skuwise.tests.support.page_picture URL FILE.svg
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from skuwise.advisor.telemetry.source import PrometheusServer
from skuwise.tests.support.tui_session import Session, drive
from skuwise.tui.data.loaders import SourceLoader


def save(url: str, file: Path, size: tuple[int, int] = (140, 45)) -> None:
    """Write `file` and, beside it, the same page as text."""

    async def steps(session: Session) -> None:
        await session.ready()
        await session.shows("GPU")
        file.write_text(session.app.export_screenshot(title="skuwise tui"))
        file.with_suffix(".txt").write_text("\n".join(line.rstrip() for line in session.lines) + "\n")

    drive(steps, SourceLoader(PrometheusServer(url, (), os.environ), ledger=None), size=size, clock=time.time)


if __name__ == "__main__":
    save(sys.argv[1], Path(sys.argv[2]))
