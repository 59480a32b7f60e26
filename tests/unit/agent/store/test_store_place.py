"""Where the database lies is read from /proc/mounts and judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from skuwise.agent.store.file.filesystem_check import file_system, place_line

MOUNTS = r"""
/dev/sda1 / ext4 rw 0 0
tmpfs /run tmpfs rw 0 0
srv:/home /home nfs4 rw 0 0
/dev/sdb1 /home/local xfs rw 0 0
srv /mnt/with\040space fuse.sshfs rw 0 0
/dev/sdc1 /var ext4 rw 0 0
tmpfs /var tmpfs rw 0 0
overlay /layer overlay rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("path", "kind", "reason"),
    [
        ("/data/x.db", "ext4", None),
        ("/run/x.db", "tmpfs", "memory-file-system"),
        ("/runner/x.db", "ext4", None),
        ("/home/me/x.db", "nfs4", "network-file-system"),
        ("/home/local/x.db", "xfs", None),
        ("/mnt/with space/x.db", "fuse.sshfs", "network-file-system"),
        ("/var/x.db", "tmpfs", "memory-file-system"),
        ("/layer/x.db", "overlay", "container-layer"),
    ],
)
def test_the_place_is_named_and_judged(tmp_path: Path, path: str, kind: str, reason: str | None) -> None:
    assert file_system(Path(path), MOUNTS) == kind
    (tmp_path / "mounts").write_text(MOUNTS)
    line = place_line(Path(path), tmp_path)
    assert line.origin == f"{path} on {kind}"
    assert (line.absence.reason if line.absence else None) == reason
    if line.absence:
        assert line.absence.remedy


def test_without_a_list_of_mounts_nothing_is_claimed(tmp_path: Path) -> None:
    line = place_line(Path("/data/x.db"), tmp_path)
    assert (line.origin, line.absence) == ("/data/x.db", None)
