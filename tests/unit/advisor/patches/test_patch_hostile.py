"""Hostile names and texts: refused, or without effect in YAML, shell and Slurm."""

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.core.advice_types import SavingsBaseline
from skuwise.advisor.patches.build import comment
from skuwise.advisor.patches.change import Target
from skuwise.rules.base.errors import SkuwiseError, UsageError
from skuwise.tests.support.patch_cases import accepted, patch_of
from skuwise.tests.support.patch_samples import (
    CLUSTER_QUEUE,
    DEPLOYMENT,
    JOB,
    ONE_GPU_SCRIPT,
    PYTORCH_JOB,
    STATEFUL_SET,
    sized,
)

EVIL = [
    "x\nkind: Secret", "$(touch /tmp/x)", "`id`", "a b", "--all", "-n", "a;b", "'", '"', "\\", "x\\\n#SBATCH --wrap=id",
    "n1 State=DOWN", "n1\nPartitionName=x", "\u202etxt", "\x1b[2J", "\u2028a", "*", "..", "a/b", "%n", "{{x}}",
    "!!python", "&a", "*a", "# c", "\0", "\r\nExecStart=/bin/id", "\ud800", "Ä", "x" * 300,
]  # fmt: skip
HOSTILE = st.one_of(st.sampled_from(EVIL), st.text(max_size=30))


@given(st.lists(HOSTILE, min_size=1))
def test_no_line_leaves_its_comment(lines: list[str]) -> None:
    text = comment(lines)
    assert all(line.startswith("#") and not line.endswith("\\") for line in text.split("\n")[:-1])
    assert len(text.splitlines()) == len(lines)
    assert yaml.safe_load(text.encode("utf-8", "backslashreplace")) is None


@given(HOSTILE.filter(bool), st.sampled_from(["move-sku", "rest-clocks"]))
def test_hostile_names_of_kubernetes_objects_are_refused(name: str, action: str) -> None:
    for field in ("kind", "name", "namespace", "container"):
        typed: dict[str, Any] = {"kind": "Deployment", "name": "chat", "namespace": "llm", "container": "server"}
        typed[field] = name
        try:
            made = patch_of(action, "kubernetes", **typed)
        except SkuwiseError as error:
            assert error.remedy
            continue
        told = yaml.safe_load(made.patch.text)
        assert told["kind"] == typed["kind"] and told["metadata"]["name"] == typed["name"]
        words = shlex.split(made.apply)
        assert words[:2] == ["kubectl", "patch"] and words[3:6] == [typed["name"], "-n", typed["namespace"]]


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize(
    ("action", "target", "option"),
    [
        ("consolidate", "kubernetes", "node"), ("move-sku", "kubernetes", "node_label"),
        ("move-sku", "slurm", "feature"), ("move-sku", "slurm", "partition"), ("mig-slice", "slurm", "mig"),
        ("mig-slice", "kubernetes", "mig"),
    ],
)  # fmt: skip
def test_what_else_is_typed_or_in_the_ledger_is_refused(action: str, target: Target, option: str, evil: str) -> None:
    entry = accepted(action, yardstick=SavingsBaseline(mig_profile=evil)) if option == "mig" else accepted(action)
    typed = {} if option == "mig" else {option: (evil,) if option.startswith("node") else evil}
    files = [("job.sh", ONE_GPU_SCRIPT)] if target == "slurm" else []
    with pytest.raises(UsageError, match="not a valid"):
        patch_of(action, target, *files, entry=entry, **typed)


def parts_of(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values inside of a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inside:
        yield (*at, key)
        yield from parts_of(child, (*at, key))


MALFORMED: tuple[tuple[str, Target, str], ...] = (
    *((action, "kubernetes", sized(text, 2, 8))
      for text in (DEPLOYMENT, STATEFUL_SET, JOB, PYTORCH_JOB)
      for action in ("move-sku", "reduce-gpus", "rest-clocks", "release")),
    *((action, "kueue", CLUSTER_QUEUE) for action in ("move-sku", "reduce-gpus")),
)  # fmt: skip
JUNK: tuple[Any, ...] = (["x"], "x", "", 5, -1, True, 1.5, {"a": 1}, None, [], {}, [None], [[1]], [{}], "9" * 30)


@given(st.data())
def test_manifests_with_a_value_of_another_form_are_patched_or_refused(data: st.DataObject) -> None:
    action, target, text = data.draw(st.sampled_from(MALFORMED))
    value = yaml.safe_load(text)
    *where, last = data.draw(st.sampled_from(list(parts_of(value))))
    holder = value
    for key in where:
        holder = holder[key]
    holder[last] = data.draw(st.sampled_from(JUNK))
    try:
        made = patch_of(action, target, ("m.yaml", json.dumps(value)), flavor="h100-ib", target_flavor="h100")
        assert yaml.safe_load(made.patch.text)["kind"] and made.apply
    except SkuwiseError as error:
        assert error.remedy
