"""Whether this node is out of service: a marker file that an operator or a health check leaves.

Nothing on a node tells that its scheduler drained it (a Slurm node's state lives with the controller, a Kubernetes
node's ``unschedulable`` with the API server, and the agent asks neither). So the node is drained where
``/run/skuwise/drained`` exists: `systemd/slurm/drained.sh` writes and removes it, by hand or from a health check. The
file's first line is the reason.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ...base.safe_text import clean_text
from ...model import Absence

REASON = "drained"
_LIMIT = 4096


def drained(marker: Path) -> Absence | None:
    """The node is out of service, and why; None: no marker. A marker that anybody could have written is none."""
    try:
        fd = os.open(marker, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_mode & 0o002:
            return None
        raw = os.read(fd, _LIMIT)
    except OSError:
        return None
    finally:
        os.close(fd)
    reason = clean_text(raw.partition(b"\n")[0]) or "no reason was given"
    return Absence(
        "source", "node", "*", REASON, f"The node is out of service: {reason}.", f"Remove {marker} once it is back."
    )
