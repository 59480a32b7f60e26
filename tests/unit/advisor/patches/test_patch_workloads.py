"""Objects as kubectl exports them: what would go wrong in the cluster is left out, kept apart or refused."""

from __future__ import annotations

import pytest
import yaml
from skuwise.advisor.patches.model import PatchFile
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.patch_cases import CLUSTER_QUEUE, DEPLOYMENT, JOB, patch_of, sized

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
