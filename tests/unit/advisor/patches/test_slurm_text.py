"""Batch scripts as text: which directives count, and what is changed of them."""

from __future__ import annotations

import pytest
from skuwise.advisor.patches.slurm import BatchScript
from skuwise.rules.base.errors import UsageError


def script(*lines: str) -> BatchScript:
    return BatchScript("\n".join(["#!/bin/bash", *lines, ""]))


@pytest.mark.parametrize(
    ("lines", "name", "value"),
    [
        (["#SBATCH --partition=a", "#SBATCH -p b"], "partition", "b"), (["#SBATCH -pb"], "partition", "b"),
        (["#SBATCH --partition b # c"], "partition", "b"), (['#SBATCH --partition="b"'], "partition", "b"),
        (["#SBATCH --exclusive -p b"], "partition", "b"), (["##SBATCH -p b"], "partition", None),
        (["#SBATCH # -p b"], "partition", None), (["srun x", "#SBATCH -p b"], "partition", None),
        (["#SBATCHX -p b"], "partition", None), ([" #SBATCH -p b"], "partition", None),
    ],
)  # fmt: skip
def test_the_last_directive_before_the_first_command_counts(lines: list[str], name: str, value: str | None) -> None:
    assert script(*lines).value(name) == value


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        ("#SBATCH --gres=gpu:h100:8 -N2", ("gres", "h100", 8, 2)), ("#SBATCH --gres=gpu", ("gres", None, 1, 1)),
        ("#SBATCH -G 4", ("gpus", None, 4, 1)),
        ("#SBATCH --gpus-per-node=a100:2 -N 3", ("gpus-per-node", "a100", 2, 3)),
        ("#SBATCH --gpus-per-task=1 -n 8", ("gpus-per-task", None, 1, 8)), ("#SBATCH --gres=gpu:1,tmp:2", None),
        ("#SBATCH --gres=gpu:2 -N 1-4", None), ("#SBATCH --mem=1", None),
        ("#SBATCH --nodes=2 --gpus-per-node=8 --gpus=16", None), ("#SBATCH -G 8 --gres=gpu:8", None),
        ("#SBATCH --gpus-per-task=1 -n 8 --gpus-per-socket=2", None), ("#SBATCH --gpus-per-socket=2", None),
        ("#SBATCH --gres=nvme:1 --gpus=4", ("gpus", None, 4, 1)),
    ],
)  # fmt: skip
def test_how_a_script_asks_for_gpus(line: str, asks: tuple | None) -> None:
    assert script(line).gpus() == asks


def test_a_new_directive_stands_after_the_last_one_and_a_variable_too() -> None:
    one = script("#SBATCH -p a", "", "srun x", "#SBATCH -p b")
    one.set("constraint", "h100")
    one.export("A", "1")
    assert one.text.splitlines()[1:4] == ["#SBATCH -p a", "#SBATCH --constraint=h100", "export A=1"]
    assert one.value("constraint") == "h100"
    bare = BatchScript("#!/bin/bash")
    bare.set("gpus", "1")
    assert bare.text == "#!/bin/bash\n#SBATCH --gpus=1\n"


@pytest.mark.parametrize(
    ("first", "taken"),
    [
        ("#!/bin/bash -l", True), ("#!/bin/sh", True), ("#! /usr/bin/env zsh", True), ("#!/bin/dash\r", True),
        ("#!/usr/bin/env -S A=b ksh", True), ("#!/usr/bin/env python3", False), ("#!/bin/csh -f", False),
        ("#!/usr/bin/fish", False), ("#!", False), ("#!/usr/bin/env", False),
        ("#!/bin/bash\n#SBATCH --export=NONE", False),
        ("#!/bin/bash\n#SBATCH --export=HOME,PATH", False), ("#!/bin/bash\n#SBATCH --export=ALL,B=1", True),
    ],
)  # fmt: skip
def test_a_variable_is_set_where_a_shell_hands_it_on(first: str, taken: bool) -> None:
    one = BatchScript(f"{first}\n#SBATCH -p a\nx\n")
    if taken:
        one.export("A", "1")
        assert "export A=1" in one.text
    else:
        with pytest.raises(UsageError) as caught:
            one.export("A", "1")
        assert "A=1" in caught.value.remedy and "--export" in caught.value.remedy


@pytest.mark.parametrize("text", ["echo\n", "#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n"])
def test_what_is_no_plain_batch_script_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        BatchScript(text)
