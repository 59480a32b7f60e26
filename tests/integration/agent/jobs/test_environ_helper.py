"""The helper that reads variables of processes where the agent may not."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def test_the_agent_asks_only_where_it_may_not_read_itself_and_another_user_is_told_nothing(
    tmp_path: Path, proc: Procfs
) -> None:
    blind, path = Procfs(tmp_path / "blind"), tmp_path / "environ.sock"
    blind.process(700, cgroup=SLURM)
    with served(path, proc.root, frozenset({os.getuid()})):
        variables = HelperVariables(blind.root, path)
        assert variables(700) == {"SLURM_JOB_ID": "42", "SLURM_JOB_NAME": "a[31m b"}
        assert variables(701) == {} and path.stat().st_mode & 0o777 == 0o600
    with served(path, proc.root, frozenset({65533})):
        assert HelperVariables(blind.root, path)(700) == {}


__all__ = ["proc"]
