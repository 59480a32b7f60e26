"""Hostile names and texts: refused, or without effect in YAML, shell and Slurm."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from skuwise.__main__ import main
from skuwise.advisor.ledger.entries import LedgerEvent
from skuwise.advisor.ledger.file.store import Ledger
from skuwise.advisor.patches.build import comment, patch_for
from skuwise.advisor.patches.model import PatchFile, Target
from skuwise.rules.base.errors import SkuwiseError, UsageError
from skuwise.tests.support.patch_cases import (
    CLUSTER_QUEUE,
    DEPLOYMENT,
    ID,
    JOB,
    NODES,
    NOW,
    PYTORCH_JOB,
    STATEFUL_SET,
    accepted,
    kept_in,
    patch_of,
    sized,
    subject,
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


MANIFEST = sized(DEPLOYMENT, 2, 8)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "chat.yaml").write_text(MANIFEST)
    return tmp_path


def patch(place: Path, *words: str) -> int:
    return main(["patch", ID[:6], "--ledger", str(place / "ledger.db"), *words])


def test_a_patch_is_printed_and_written_once(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept_in(place / "ledger.db", accepted("move-sku"))
    given = ["--for", "kubernetes", "--manifest", str(place / "chat.yaml")]
    assert patch(place, *given) == 0
    printed = capsys.readouterr().out
    assert f"ledger show {ID}" in printed and "by ann" in printed and "What was measured." in printed
    assert patch(place, *given, "--output", str(place / "out")) == 0
    names = sorted(one.name for one in (place / "out").iterdir())
    assert names == [
        "README.txt", "kustomization.yaml", "original.yaml", "patch-deployment-chat.yaml", "undo-deployment-chat.yaml",
    ]  # fmt: skip
    assert (place / "out/patch-deployment-chat.yaml").read_text() == printed
    assert (place / "out/original.yaml").read_text() == MANIFEST
    assert "nothing was applied" in capsys.readouterr().err
    assert patch(place, *given, "--output", str(place / "out")) == 2
    assert "not empty" in capsys.readouterr().err
    assert patch(place, *given, "--undo") == 0
    undo = capsys.readouterr().out
    assert undo == (place / "out/undo-deployment-chat.yaml").read_text()
    assert yaml.safe_load(undo)["metadata"]["annotations"] == {"skuwise.dev/recommendation": None}


@pytest.mark.parametrize(
    ("act", "words", "status", "says"),
    [
        (None, [], 2, "ledger accept"), ("dismissed", [], 2, "is dismissed, not accepted"), ("done", [], 2, "--undo"),
        ("done", ["--undo"], 0, ""), ("regressed", [], 2, "ledger accept"),
    ],
)  # fmt: skip
def test_only_what_was_accepted_is_patched(
    act, words: list[str], status: int, says: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = accepted("move-sku")
    kept_in(place / "ledger.db", entry if act is not None else replace(entry, events=entry.events[:1]))
    # Long after it was last proposed nothing that was decided on expires.
    if act is not None:
        Ledger(place / "ledger.db").add(ID, LedgerEvent(act, NOW + 60, "skuwise", None, "told"))
    done = patch(place, "--for", "kubernetes", "--manifest", str(place / "chat.yaml"), *words)
    told = capsys.readouterr()
    assert (done, "Traceback" in told.err) == (status, False)
    assert says in told.err and bool(told.out) is (status == 0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--for", "slurm"], "batch script"),
        (["--for", "kubernetes", "--manifest", "none"], "none"),
        (["--for", "kubernetes", "--node-label", "a b=c"], "node label"),
        (["--for", "kubernetes", "--node-label", "a"], "KEY=VALUE"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_sentence_with_a_remedy(
    words: list[str], says: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept_in(place / "ledger.db", accepted("move-sku"))
    assert patch(place, *words) == 2
    told = capsys.readouterr()
    assert says in told.err and told.err.count("\n") == 1 and not told.out


def test_what_is_blocked_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = accepted("move-sku")
    kept_in(place / "ledger.db", replace(entry, proposal=replace(entry.proposal, blocked=True, ground=None)))
    assert patch(place, "--for", "kubernetes") == 2
    assert "it is blocked" in capsys.readouterr().err


TWO = sized(DEPLOYMENT, 2, 8)
METADATA = "metadata: {name: chat, namespace: llm"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: chat, namespace: llm}
spec:
  nodeName: old-node
  containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 16}}}]
"""
CONTAINERS = "containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 8}}}]"


def spec_of(file: PatchFile) -> dict:
    return yaml.safe_load(file.text)["spec"]


def refused(action: str, manifest: str, **asked: object) -> UsageError:
    with pytest.raises(UsageError) as caught:
        patch_of(action, "kubernetes", ("m.yaml", manifest), **asked)
    assert caught.value.remedy
    return caught.value


def test_a_placed_pod_is_not_bound_to_its_old_node() -> None:
    (part,) = patch_of("move-sku", "kubernetes", ("pod.yaml", POD)).parts
    assert spec_of(part.patch)["nodeName"] is None and "affinity" in spec_of(part.patch)
    assert spec_of(part.undo)["nodeName"] == "old-node"


@pytest.mark.parametrize(
    "spec",
    [
        "selector: {matchLabels: {batch.kubernetes.io/controller-uid: abc}}",
        "template: {metadata: {labels: {controller-uid: abc}}, spec: {" + CONTAINERS + "}}",
    ],
    ids=["selector", "label"],
)
def test_an_exported_job_is_not_deleted_since_it_could_not_be_created_again(spec: str) -> None:
    value = yaml.safe_load(sized(JOB, 1, 8))
    value["spec"] |= yaml.safe_load(spec)
    error = refused("rest-clocks", yaml.safe_dump(value))
    assert "export" in error.message and "made from" in error.remedy
    assert patch_of("release", "kubernetes", ("job.yaml", yaml.safe_dump(value))).parts
    value["spec"]["manualSelector"] = True
    assert patch_of("rest-clocks", "kubernetes", ("job.yaml", yaml.safe_dump(value))).parts


@pytest.mark.parametrize(
    ("api", "kind", "change"),
    [
        ("batch/v1", "Job", {"suspend": True}), ("ray.io/v1", "RayCluster", {"suspend": True}),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", {"suspend": True}),
        ("kubeflow.org/v2beta1", "MPIJob", {"runPolicy": {"suspend": True}}),
        ("kubeflow.org/v1", "Notebook", None), ("batch.volcano.sh/v1alpha1", "Job", None),
        ("example.org/v1", "CronJob", None),
    ],
)  # fmt: skip
def test_a_workload_is_stopped_by_a_field_that_its_kind_has(api: str, kind: str, change: dict | None) -> None:
    manifest = (
        f"apiVersion: {api}\nkind: {kind}\n{METADATA}}}\nspec: {{tasks: [{{template: {{spec: {{{CONTAINERS}}}}}}}]}}\n"
    )
    if change is None:
        assert "cannot be stopped" in refused("release", manifest).message
    else:
        assert spec_of(patch_of("release", "kubernetes", ("m.yaml", manifest)).parts[0].patch) == change


@pytest.mark.parametrize(
    ("name", "namespace"), [("search", "llm"), ("chat", "prod"), ("search", "prod")]
)  # fmt: skip
def test_the_manifest_of_another_workload_is_taken_only_by_its_name(name: str, namespace: str) -> None:
    other = TWO.replace("name: chat\n  namespace: llm", f"name: {name}\n  namespace: {namespace}")
    error = refused("release", other)
    assert f"'{namespace}/{name}'" in error.message and "--name" in error.remedy
    (part,) = patch_of("release", "kubernetes", ("m.yaml", other), name=name).parts
    assert part.about == f"Deployment {name}"


FLAVOR = (
    "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ResourceFlavor\nmetadata: {name: NAME}\nspec: {nodeLabels: {a: b}}\n"
)
NEW = "azure-standard-nd96is-h100-v5"
LENT = CLUSTER_QUEUE.replace("nominalQuota: 32}", "nominalQuota: 16, lendingLimit: LENT}")


def gpus(file: PatchFile, flavor: str = "h100-ib") -> dict:
    (group,) = yaml.safe_load(file.text)["spec"]["resourceGroups"]
    (own,) = (one for one in group["flavors"] if one["name"] == flavor)
    return next(one for one in own["resources"] if one["name"] == "nvidia.com/gpu")


@pytest.mark.parametrize(
    ("manifest", "asked"),
    [(CLUSTER_QUEUE, {"target_flavor": "l40s"}), (f"{FLAVOR.replace('NAME', NEW)}---\n{CLUSTER_QUEUE}", {})],
    ids=["named", "in the manifest"],
)
def test_a_flavor_that_exists_gets_a_quota_and_stays(manifest: str, asked: dict) -> None:
    made = patch_of("move-sku", "kueue", ("queue.yaml", manifest), **asked)
    (part,) = made.parts
    assert part.about == "ClusterQueue gpus"
    assert gpus(part.patch, asked.get("target_flavor", NEW))["nominalQuota"] == 16
    assert not any("create" in step or "delete" in step for step in (*part.apply, *part.revert))
    (kustomization,) = made.more
    assert yaml.safe_load(kustomization.text)["resources"] == ["original.yaml"]


def test_a_new_flavor_is_created_with_a_word_of_one_that_is_there() -> None:
    made = patch_of("move-sku", "kueue", ("queue.yaml", CLUSTER_QUEUE))
    assert [part.about for part in made.parts] == [f"ResourceFlavor {NEW} (new)", "ClusterQueue gpus"]
    assert any(f"set --target-flavor {NEW}" in note for note in made.notes)


@pytest.mark.parametrize(("lent", "after"), [("12", 8), ('"12"', "8"), ("8", 8), ("3", 3)])
def test_a_lending_limit_never_exceeds_the_quota(lent: str, after: int | str) -> None:
    made = patch_of("reduce-gpus", "kueue", ("queue.yaml", LENT.replace("LENT", lent)))
    (part,) = made.parts
    assert gpus(part.patch) == {"name": "nvidia.com/gpu", "nominalQuota": 8, "lendingLimit": after}
    assert gpus(part.undo)["lendingLimit"] == yaml.safe_load(lent)
    assert any("lendingLimit" in note for note in made.notes) is ("12" in lent)


def test_a_patch_of_one_version_is_refused_by_the_server_for_a_later_one() -> None:
    given = ("queue.yaml", CLUSTER_QUEUE.replace("{name: gpus}", '{name: gpus, resourceVersion: "7"}'))
    made = patch_of("reduce-gpus", "kueue", given)
    (part,) = made.parts
    assert yaml.safe_load(part.patch.text)["metadata"]["resourceVersion"] == "7"
    assert "resourceVersion" not in yaml.safe_load(part.undo.text)["metadata"]
    assert any("conflict" in note for note in made.notes) and any("undo puts back whole lists" in n for n in made.notes)


@pytest.mark.parametrize("spec", ["spec: [a]", "spec: x", "spec: {resourceGroups: {a: b}}"])
def test_a_queue_without_a_valid_specification_is_refused(spec: str) -> None:
    with pytest.raises(UsageError):
        patch_of("reduce-gpus", "kueue", ("queue.yaml", CLUSTER_QUEUE.split("spec:")[0] + spec + "\n"))
