"""The opt-in helper that reads environments: what it answers, to whom, and what it keeps to itself."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from skuwise.agent.inventory.processes.device_cgroup import read_majors
from skuwise.agent.inventory.processes.environ_helper import HelperVariables, answer, listen, serve
from skuwise.agent.inventory.processes.procfs import read_open_minors
from skuwise.tests.support.sysfs_trees import Procfs, put
from skuwise.tests.unit.agent.inventory.test_command_line import SLURM, proc


@pytest.fixture
def path(tmp_path: Path, proc: Procfs) -> Iterator[Path]:
    where = tmp_path / "environ.sock"
    with listen(where) as listener:
        thread = threading.Thread(target=serve, args=(listener, proc.root, frozenset({os.getuid()})))
        thread.start()
        yield where
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
    assert not thread.is_alive()


def test_gpus_that_a_process_of_slurm_holds_open(proc: Procfs, path: Path, tmp_path: Path) -> None:
    assert answer(proc.root, b"gpus 700\n") == b'{"gpus": []}\n'
    assert answer(proc.root, b"gpus 701\n") == answer(proc.root, b"gpus\n") == b"{}\n"
    put(proc.root / "devices", "Character devices:\n  1 mem\n510 nvidia-frontend")
    devices = {"3": (510, 3), "4": (510, 255), "5": (1, 3), "6": None}
    for name in devices:
        put(proc.root / "700/fd" / name, "")

    def number_of(where: str) -> tuple[int, int] | None:
        return devices[Path(where).name]

    found = read_open_minors(proc.root, 700, read_majors(proc.root).gpus, number_of)
    assert found == {3, 255}
    assert read_open_minors(proc.root, 999, frozenset({510}), number_of) == frozenset()
    assert HelperVariables(tmp_path, path).open_minors(700) == frozenset()


def test_the_agent_asks_only_where_it_may_not_read_itself(path: Path, tmp_path: Path) -> None:
    blind = Procfs(tmp_path / "blind")
    blind.process(700, cgroup=SLURM)
    variables = HelperVariables(blind.root, path)
    assert variables(700) == {"SLURM_JOB_ID": "42", "SLURM_JOB_GPUS": "0,1", "SLURM_JOB_NAME": "a[31m b"}
    assert variables(701) == {}
    assert path.stat().st_mode & 0o777 == 0o600


def test_another_user_is_told_nothing(tmp_path: Path, proc: Procfs) -> None:
    where = tmp_path / "closed.sock"
    with listen(where) as listener:
        thread = threading.Thread(target=serve, args=(listener, proc.root, frozenset({65533})))
        thread.start()
        found = HelperVariables(tmp_path / "blind", where)(700)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
    assert found == {}


__all__ = ["proc"]
