"""Objects as kubectl exports them: what would go wrong in the cluster is left out, kept apart or refused."""

from __future__ import annotations

import pytest
import yaml
from skuwise.advisor.patches.model import PatchFile
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.patch_cases import DEPLOYMENT, JOB, PYTORCH_JOB, patch_of, sized

TWO = sized(DEPLOYMENT, 2, 8)
TWO_JOBS = sized(JOB, 2, 8)
METADATA = "metadata: {name: chat, namespace: llm"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: chat, namespace: llm}
spec:
  nodeName: old-node
  containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 16}}}]
"""
RAY = """\
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: chat, namespace: llm}
spec:
  workerGroupSpecs:
    - groupName: gpu
      replicas: 4
      minReplicas: 4
      maxReplicas: 8
      template: {spec: {containers: [{name: w, resources: {limits: {nvidia.com/gpu: 4}}}]}}
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


def test_completions_change_only_where_kubernetes_lets_them() -> None:
    made = patch_of("reduce-gpus", "kubernetes", ("job.yaml", TWO_JOBS))
    assert spec_of(made.parts[0].patch) == {"parallelism": 1}
    assert any("keeps its 2 completions" in note for note in made.notes)
    indexed = TWO_JOBS.replace("  parallelism", "  completionMode: Indexed\n  parallelism")
    made = patch_of("reduce-gpus", "kubernetes", ("job.yaml", indexed))
    assert spec_of(made.parts[0].patch) == {"parallelism": 1, "completions": 1}
    assert not any("completions" in note for note in made.notes)


def test_bounds_of_an_autoscaler_follow_the_replicas() -> None:
    (part,) = patch_of("reduce-gpus", "kubernetes", ("ray.yaml", RAY)).parts
    (group,) = spec_of(part.patch)["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (2, 2, 8)
    elastic = sized(PYTORCH_JOB, 2, 8).replace(
        "spec:\n", "spec:\n  elasticPolicy: {minReplicas: 2, maxReplicas: 4}\n", 1
    )
    (part,) = patch_of("reduce-gpus", "kubernetes", ("job.yaml", elastic)).parts
    assert spec_of(part.patch)["elasticPolicy"] == {"minReplicas": 1}
    assert spec_of(part.undo)["elasticPolicy"] == {"minReplicas": 2}


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
