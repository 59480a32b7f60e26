"""The helper that reads variables of processes where the agent may not."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from skuwise.agent.jobs.environ_helper import HelperVariables, listen, serve
from skuwise.tests.support.sysfs_trees import Procfs
from skuwise.tests.unit.agent.jobs.test_command_line import SLURM, proc


@contextmanager
def served(where: Path, procfs: Path, uids: frozenset[int]) -> Iterator[None]:
    """A helper at `where` that answers processes of these users."""
    with listen(where) as listener:
        thread = threading.Thread(target=serve, args=(listener, procfs, uids))
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def path(tmp_path: Path, proc: Procfs) -> Iterator[Path]:
    with served(tmp_path / "environ.sock", proc.root, frozenset({os.getuid()})):
        yield tmp_path / "environ.sock"


def test_the_agent_asks_only_where_it_may_not_read_itself(path: Path, tmp_path: Path) -> None:
    blind = Procfs(tmp_path / "blind")
    blind.process(700, cgroup=SLURM)
    variables = HelperVariables(blind.root, path)
    assert variables(700) == {"SLURM_JOB_ID": "42", "SLURM_JOB_NAME": "a[31m b"}
    assert variables(701) == {}
    assert path.stat().st_mode & 0o777 == 0o600


def test_another_user_is_told_nothing(tmp_path: Path, proc: Procfs) -> None:
    with served(tmp_path / "closed.sock", proc.root, frozenset({65533})):
        assert HelperVariables(tmp_path / "blind", tmp_path / "closed.sock")(700) == {}


__all__ = ["proc"]
