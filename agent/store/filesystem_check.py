"""What lies under the database: a file system that forgets, or one that another machine can write to, is said."""

from __future__ import annotations

import re
from pathlib import Path

from ..model import Absence, Capability
from .disk_errors import store_absence

_FORGETS = frozenset({"tmpfs", "ramfs", "rootfs", "devtmpfs"})
_LAYERS = frozenset({"overlay", "aufs"})
# WAL needs memory that all who open the file share: it does not reach over a network (https://www.sqlite.org/wal.html).
_NETWORK = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "9p", "ceph", "lustre", "gpfs", "beegfs", "orangefs",
        "pvfs2", "glusterfs", "ocfs2", "gfs2", "wekafs", "virtiofs",
    }
)  # fmt: skip
# FUSE may be anything; these are disks of this machine.
_LOCAL_FUSE = frozenset({"fuseblk", "fuse.ntfs-3g"})


def file_system(path: Path, mounts: str) -> str:
    """The type of the file system that holds `path`, by the text of /proc/mounts; empty where it does not tell."""
    real = path.resolve()
    found, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[1])
        inside = real.is_relative_to(point) if point.startswith("/") else False
        if inside and len(point) >= len(found):  # a later mount over the same place hides the earlier
            found, kind = point, fields[2]
    return kind


def place_line(db: Path, procfs: Path) -> Capability:
    """Doctor's line about where the database lies."""
    try:
        kind = file_system(db, (procfs / "mounts").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        kind = ""
    origin = f"{db} on {kind}" if kind else str(db)
    return Capability("store", "source", "store", "*", origin, _objection(db, kind))


def _objection(db: Path, kind: str) -> Absence | None:
    if kind in _FORGETS:
        return store_absence(
            "memory-file-system",
            f"{db} lies on {kind}: all that was sampled is gone after a reboot, and takes memory until then.",
            "Name a file on a disk with db = PATH.",
        )
    if kind in _NETWORK or (kind.startswith("fuse") and kind not in _LOCAL_FUSE):
        return store_absence(
            "network-file-system",
            f"{db} lies on {kind}: a log shared over a network breaks databases, and a server that hangs stops the "
            "agent.",
            "Name a file on a local disk with db = PATH, and send snapshots to the shared folder.",
        )
    if kind in _LAYERS:
        return store_absence(
            "container-layer",
            f"{db} lies in a container's own layer ({kind}): it is gone with the container.",
            "Mount a folder of the host there, or name a file on one with db = PATH.",
        )
    return None
