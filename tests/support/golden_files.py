"""Expected output in files: `RENEW_GOLDEN=1 pytest ...` or `make golden` writes them; review the difference."""

import os
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden"
RENEW = bool(os.environ.get("RENEW_GOLDEN"))


def renewed(path: Path, text: str) -> str:
    """What `path` says; where files are renewed, `text` after it was written there."""
    if RENEW:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return path.read_bytes().decode()


def golden(name: str, text: str) -> str:
    """What ``tests/golden/NAME`` says, to be compared with `text`."""
    return renewed(FOLDER / name, text)
