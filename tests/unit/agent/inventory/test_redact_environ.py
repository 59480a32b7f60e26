"""Environments on a command line lose their values, whatever their names."""

from __future__ import annotations

import pytest
from skuwise.agent.inventory.redaction.redact import redact_command


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["run.py", "--env", '{"A":"one","B":"two"}', "--x", "1"], "run.py --env *** --x 1"),
        (["x", '--env={"A":"one"}'], "x --env=***"),
        (["docker", "run", "-e", "FOO=one", "-e", "BAR", "image"], "docker run -e FOO=*** -e BAR image"),
        (["bwrap", "--setenv", "ANY", "one", "--setenv", "PATH", "/bin", "sh"],
         "bwrap --setenv ANY *** --setenv PATH /bin sh"),
        (["env", "-i", "A=one", "B=two", "python", "C=kept"], "env -i A=*** B=*** python C=kept"),
        (["srun", "--export=ALL,A=one,B=two", "python"], "srun --export=ALL,A=***,B=*** python"),
        (["srun", "--export", "ALL", "python"], "srun --export ALL python"),
        (["prog", "--env"], "prog --env"),
    ],
)  # fmt: skip
def test_values_go_and_names_stay(argv: list[str], shown: str) -> None:
    assert redact_command(argv) == shown
