"""Batch scripts and slurm.conf as text: which directives count, and what is changed of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.patches.slurm_conf import (
    hosts,
    with_detected_gres,
    with_feature,
    with_mig_gres,
    with_node_values,
    with_partition,
    with_value,
)
from skuwise.advisor.patches.slurm_script import BatchScript
from skuwise.advisor.patches.text_diff import unified
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


@given(st.text(st.sampled_from("#SBATCH -p=\n\r\t'\"xgpu:18,\u2028"), max_size=120))
def test_no_script_breaks_the_reader_and_what_is_set_counts(text: str) -> None:
    try:
        one = BatchScript("#!/bin/bash\n" + text)
    except UsageError:
        return
    one.set("partition", "plain")
    assert one.value("partition") == "plain"


@pytest.mark.parametrize(
    ("text", "found"),
    [("n1", ["n1"]), ("n[1-3,05]", ["n1", "n2", "n3", "n05"]), ("a,b[08-10]x", ["a", "b08x", "b09x", "b10x"])],
)
def test_host_lists(text: str, found: list[str]) -> None:
    assert hosts(text) == found


@pytest.mark.parametrize("text", ["n[1-999999]", "n[a]", "n[1-999999999999]", "n[-]"])
def test_host_lists_that_are_none_are_refused_or_kept_as_text(text: str) -> None:
    try:
        assert len(hosts(text)) == 1
    except UsageError as error:
        assert error.remedy


def test_a_value_is_changed_where_it_stands_and_comments_stay() -> None:
    line = 'NodeName=n1 Gres="gpu:8" CPUs=4  # Gres=gpu:1\r\n'
    assert with_value(line, "gres", lambda _: "gpu:7") == "NodeName=n1 Gres=gpu:7 CPUs=4  # Gres=gpu:1\r\n"
    assert with_value("NodeName=n1 # c\n", "Feature", lambda _: "f") == "NodeName=n1 Feature=f # c\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [("NodeName=n[1-2] Gres=gpu:8\n", "Split"), ("NodeName=m1 Gres=gpu:8\n", "no line"),
     ("NodeName=n1 \\\n Gres=gpu:8\n", "backslash"),
     ("NodeName=n1 CPUs=1\n", "no Gres"), ("NodeName=n1 Gres=gpu:1\n", "fewer than 2")],
)  # fmt: skip
def test_lines_that_cannot_be_changed_are_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        with_mig_gres(text, {"n1": 2}, 7, "1g.10gb")


def test_only_lines_of_the_nodes_change() -> None:
    text = "# NodeName=n1\nnodename=n1 CPUs=1\nNodeName=n2\n"
    made = with_node_values(text, ["n1"], ("CPUs",), lambda old: f"{old}0")
    assert made == "# NodeName=n1\nnodename=n1 CPUs=10\nNodeName=n2\n"


def test_every_line_keeps_its_features_and_those_of_its_defaults() -> None:
    text = (
        "Nodename = default CPUs=4 Feature=ib\nNodeName=n1 features=h100,ib\nNodeName = n2 Feature = a100\n"
        "NodeName=n3\nNodeName=DEFAULT CPUs=8\nNodeName=n4\nNodeName=DEFAULT Features=roce\nNodeName=n5\n"
        "NodeName=DEFAULT Feature=roce\nNodeName=n6 CPUs=2 # c\n"
    )
    made = with_feature(text, ["n1", "n2", "n3", "n4", "n5", "n6"], "l40s").splitlines()
    assert [line for line in made if "l40s" in line] == [
        "NodeName=n1 features=h100,ib,l40s", "NodeName = n2 Feature = a100,l40s", "NodeName=n3 Feature=ib,l40s",
        "NodeName=n4 Feature=ib,l40s", "NodeName=n5 Feature=ib,l40s", "NodeName=n6 CPUs=2 Feature=roce,l40s # c",
    ]  # fmt: skip


def test_gpus_of_the_defaults_are_cut_like_those_of_a_line() -> None:
    text = "NodeName=DEFAULT Gres=gpu:h100:8,fpga:1\nNodeName=n1 CPUs=4\n"
    assert with_mig_gres(text, {"n1": 1}, 7, "1g.10gb").splitlines()[1] == (
        "NodeName=n1 CPUs=4 Gres=gpu:h100:7,fpga:1,gpu:1g.10gb:7"
    )


def test_what_an_included_file_may_set_is_not_taken_for_missing() -> None:
    with pytest.raises(UsageError, match="includes"):
        with_feature("include defaults.conf\nNodeName=n1\n", ["n1"], "l40s")
    made = with_feature("Include defaults.conf\nNodeName=n1 Feature=a\n", ["n1"], "l40s")
    assert made.endswith("NodeName=n1 Feature=a,l40s\n")


def test_a_partition_that_is_there_is_told_in_any_form() -> None:
    for line in ("PartitionName=cheap Nodes=n1\n", "partitionname = Cheap Nodes=n1\n"):
        with pytest.raises(UsageError, match="there already"):
            with_partition(line, "cheap", ["n1"])


def test_other_devices_of_a_node_stay_in_gres_conf() -> None:
    text = (
        "NodeName=n1 Name=nvme Count=2 # scratch\nnodename=n1 name = GPU Type=h100 File=/dev/nvidia[0-3]\n"
        "NodeName=n1 Name=gpu Type=h100 File=/dev/nvidia[4-7]\nNodeName=n[1-2] Name=fpga File=/dev/fpga[0-1]\n"
        "NodeName=n1 AutoDetect=off\nNodeName=n1 Name=shard Count=32\nNodeName=n2 Name=gpu File=/dev/nvidia[0-7]\n"
    )
    lines = text.splitlines()
    assert with_detected_gres(text, ["n1"]).splitlines() == [
        lines[0], "NodeName=n1 AutoDetect=nvml", lines[3], lines[5], lines[6],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("NodeName=n1 Name=fpga File=/dev/fpga0\n", "no line for node"),
        ("Name=gpu File=/dev/nvidia[0-7]\nNodeName=n1 Name=gpu Count=1\n", "GPUs of all nodes"),
        ("autodetect = NVML\nNodeName=n1 Name=gpu Count=1\n", "needs no change"),
        ("NodeName=n[1-2] Name=gpu Count=1\n", "of which 1 change"),
    ],
)
def test_gres_conf_whose_gpus_are_not_those_of_the_node_alone_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        with_detected_gres(text, ["n1"])


def test_a_difference_says_where_the_last_newline_is_missing() -> None:
    assert unified("a", "b", "x").splitlines()[3:] == [
        "-a",
        "\\ No newline at end of file",
        "+b",
        "\\ No newline at end of file",
    ]
    assert unified("a\n", "a\n", "x") == ""
