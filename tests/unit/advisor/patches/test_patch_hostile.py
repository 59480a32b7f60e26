"""Hostile names and texts: refused, or without effect in YAML, shell and Slurm."""

from __future__ import annotations

import json
import shlex
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.moves.tracking.observation import WorkloadAddress
from skuwise.advisor.patches.build import patch_for
from skuwise.advisor.patches.head import comment, head_of, readme, with_head
from skuwise.advisor.patches.model import PatchSet, Target
from skuwise.rules.base.errors import SkuwiseError
from skuwise.tests.support.patch_cases import (
    BATCH_SCRIPT,
    CLUSTER_QUEUE,
    DEPLOYMENT,
    JOB,
    NODES,
    ONE_GPU_SCRIPT,
    PYTORCH_JOB,
    STATEFUL_SET,
    accepted,
    sized,
    subject,
)

EVIL = [
    "x\nkind: Secret", "$(touch /tmp/x)", "`id`", "a b", "--all", "-n", "a;b", "'", '"', "\\", "x\\\n#SBATCH --wrap=id",
    "n1 State=DOWN", "n1\nPartitionName=x", "\u202etxt", "\x1b[2J", "\u2028a", "*", "..", "a/b", "%n", "{{x}}",
    "!!python", "&a", "*a", "# c", "\0", "\r\nExecStart=/bin/id", "\ud800", "Ä", "x" * 300,
]  # fmt: skip
HOSTILE = st.one_of(st.sampled_from(EVIL), st.text(max_size=30))


def texts(made: PatchSet) -> list[str]:
    return [file.text for part in made.parts for file in (part.patch, part.undo)]


@given(st.lists(HOSTILE, min_size=1))
def test_no_line_leaves_its_comment(lines: list[str]) -> None:
    text = comment(lines)
    assert all(line.startswith("#") and not line.endswith("\\") for line in text.split("\n")[:-1])
    assert len(text.splitlines()) == len(lines)
    assert yaml.safe_load(text.encode("utf-8", "backslashreplace")) is None


@given(HOSTILE, HOSTILE, HOSTILE)
def test_a_head_is_comment_whatever_the_ledger_holds(about: str, text: str, by: str) -> None:
    entry = accepted("move-sku", about, text)
    entry = replace(entry, events=tuple(replace(e, by=by, why=text) for e in entry.events))
    made = patch_for(subject("move-sku", ("m.yaml", sized(DEPLOYMENT, 2, 8)), entry=entry), "kubernetes")
    head = head_of(entry, made.parts[0], (text, about), "skuwise ledger show r-1", undo=False)
    assert all(line.startswith("# ") and not line.endswith("\\") for line in head.split("\n")[:-1])
    whole = with_head(made.parts[0].patch, head).text.encode("utf-8", "backslashreplace")
    assert yaml.safe_load(whole) == yaml.safe_load(made.parts[0].patch.text)
    page = readme(entry, made, "skuwise ledger show r-1").text
    assert all(c.isprintable() or c == "\n" or unicodedata.category(c) == "Zs" for c in page)


@given(HOSTILE.filter(bool))
def test_hostile_names_of_kubernetes_objects_are_refused(name: str) -> None:
    for field in ("kind", "name", "namespace", "container"):
        asked: dict[str, Any] = {
            "kind": "Deployment",
            "name": "chat",
            "namespace": "llm",
            "container": "server",
            field: name,
        }
        for action in ("move-sku", "rest-clocks"):
            try:
                made = patch_for(subject(action, **asked), "kubernetes")
            except SkuwiseError as error:
                assert error.remedy
                continue
            (part,) = made.parts
            told = yaml.safe_load(part.patch.text)
            assert told["kind"] == asked["kind"] and told["metadata"]["name"] == asked["name"]
            words = shlex.split(part.apply[0])
            assert words[:2] == ["kubectl", "patch"] and words[3:6] == [asked["name"], "-n", asked["namespace"]]


@given(HOSTILE, HOSTILE)
def test_a_workload_of_a_hostile_name_is_refused_or_patched_by_its_manifest(name: str, space: str) -> None:
    entry = accepted("move-sku", name, address=WorkloadAddress("kubernetes", name, space, name, name, name, name))
    try:
        made = patch_for(subject("move-sku", entry=entry), "kubernetes")
        assert yaml.safe_load(made.parts[0].patch.text)["metadata"]["namespace"] == space
    except SkuwiseError as error:
        assert error.remedy


@given(HOSTILE)
def test_hostile_values_of_a_manifest_stay_values(value: str) -> None:
    if any(0xD800 <= ord(c) < 0xE000 for c in value):
        return
    manifest = yaml.safe_load(sized(DEPLOYMENT, 2, 8))
    manifest["spec"]["template"]["spec"]["nodeSelector"] = {"node.kubernetes.io/instance-type": value}
    manifest["spec"]["template"]["spec"]["containers"][1]["env"] = [{"name": value, "value": value}]
    for action in ("move-sku", "rest-clocks"):
        made = patch_for(subject(action, ("m.yaml", json.dumps(manifest))), "kubernetes")
        for text in texts(made):
            assert text.isascii() and yaml.safe_load(text)["kind"] == "Deployment"
        if action == "move-sku":
            back = yaml.safe_load(made.parts[0].undo.text)["spec"]["template"]["spec"]["nodeSelector"]
            assert back == {"node.kubernetes.io/instance-type": value}


@given(HOSTILE)
def test_hostile_names_of_nodes_partitions_and_features_are_refused(name: str) -> None:
    cases: tuple[tuple[str, Target, str | None, dict[str, Any]], ...] = (
        ("move-sku", "slurm", BATCH_SCRIPT, {"partition": name}),
        ("move-sku", "slurm", BATCH_SCRIPT, {"feature": name}),
        ("consolidate", "kubernetes", None, {"nodes": (name,)}),
        ("move-sku", "kueue", CLUSTER_QUEUE, {"target_flavor": name}),
    )  # fmt: skip
    for action, target, manifest, asked in cases:
        given_ = (("job.sh", manifest),) if manifest is not None else ()
        try:
            made = patch_for(subject(action, *given_, **asked), target)
        except SkuwiseError as error:
            assert error.remedy
            continue
        assert name.isascii() and not set(name) & set(" \n\r\t'\"\\;&|$`#*=\0")
        assert any(name in text for text in texts(made))


@pytest.mark.parametrize("name", ["a b.sh", "$(id).sh", "-R", "x\ny.sh", "..", "'.sh"])
def test_names_of_files_have_no_effect_on_a_shell(name: str) -> None:
    made = patch_for(subject("mig-slice", (name, ONE_GPU_SCRIPT)), "slurm")
    (part,) = made.parts
    words = shlex.split(part.apply[0])
    assert words[0] == "patch" and words[1] in ("FILE", f"/srv/{name}") and len(words) == 3
    assert part.patch.text.startswith("--- a/") and "/" not in part.patch.name
    assert all("/" not in file.name and file.name not in (".", "..") for file in made.originals)


def parts_of(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values inside of a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inside:
        yield (*at, key)
        yield from parts_of(child, (*at, key))


MALFORMED: tuple[tuple[str, Target, str, dict[str, Any]], ...] = (
    *((action, "kubernetes", sized(text, 2, 8), {})
      for text in (DEPLOYMENT, STATEFUL_SET, JOB, PYTORCH_JOB)
      for action in ("move-sku", "reduce-gpus", "rest-clocks", "release")),
    *((action, "kueue", CLUSTER_QUEUE, {}) for action in ("move-sku", "reduce-gpus", "mig-slice")),
    ("consolidate", "kubernetes", NODES, {}),
)  # fmt: skip
JUNK: tuple[Any, ...] = (["x"], "x", "", 5, -1, True, 1.5, {"a": 1}, None, [], {}, [None], [[1]], [{}], "9" * 30)


@given(st.data())
def test_manifests_with_a_value_of_another_form_are_patched_or_refused(data: st.DataObject) -> None:
    action, target, text, asked = data.draw(st.sampled_from(MALFORMED))
    value = yaml.safe_load(text)
    *where, last = data.draw(st.sampled_from(list(parts_of(value))))
    holder = value
    for key in where:
        holder = holder[key]
    holder[last] = data.draw(st.sampled_from(JUNK))
    try:
        assert patch_for(subject(action, ("m.yaml", json.dumps(value)), **asked), target).parts
    except SkuwiseError as error:
        assert error.remedy
