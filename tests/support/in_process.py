"""Commands run in this process."""

from __future__ import annotations

import pytest
from skuwise.__main__ import main


def skus(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int | str | None, str, str]:
    """Status, stdout and stderr of `skuwise skus` with these words."""
    try:
        status = main(["skus", *words])
    except SystemExit as stopped:
        status = stopped.code
    return status, *capsys.readouterr()
