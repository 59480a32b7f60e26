"""Commands run in this process."""

from __future__ import annotations

import pytest
from skuwise.__main__ import main


def skus(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str, str]:
    """Status, stdout and stderr of `skuwise skus` with these words."""
    try:
        status = main(["skus", *words])
    except SystemExit as stopped:
        status = stopped.code
    told = capsys.readouterr()
    return status, told.out, told.err
