"""Patches of Kubernetes objects in the real kubectl: applied to sample manifests, undone, and compared."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from skuwise.tests.support.patch_cases import (
    CLUSTER_QUEUE,
    ID,
    KUBERNETES_ACTIONS,
    NODES,
    SAMPLES,
    Sample,
    accepted,
    patch_of,
)
from skuwise.tests.support.prometheus_engines import needed


def patched(folder: Path, manifest: str, patch: str, kind: str) -> str:
    """A manifest with a patch applied by ``kubectl patch --local``, as YAML."""
    needed("kubectl")
    source, change = folder / "manifest.yaml", folder / "change.yaml"
    source.write_text(manifest)
    change.write_text(patch)
    command = ["kubectl", "patch", "--local", "-f", source, "--type", kind, "--patch-file", change, "-o", "yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def plain(manifest: str, folder: Path, kind: str = "merge") -> Any:
    """A manifest as kubectl understands it."""
    return value(patched(folder, manifest, "{}", kind))


def value(text: str) -> Any:
    """A document; no annotations and an empty map of them are one, as the API server stores them."""
    found = yaml.safe_load(text)
    if found.get("metadata", {}).get("annotations") == {}:
        del found["metadata"]["annotations"]
    return found


def kustomized(folder: Path) -> list[Any]:
    """What ``kubectl kustomize`` makes of a folder."""
    needed("kubectl")
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def minor_version() -> int:
    """Of kubectl: 32 of 1.32."""
    needed("kubectl")
    told = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True, check=True)
    return int(re.sub(r"\D", "", json.loads(told.stdout)["clientVersion"]["minor"]))


def pod_of(manifest) -> dict:
    spec = manifest["spec"]
    if "pytorchReplicaSpecs" in spec:
        return spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    return spec["template"]["spec"]


def holder_of(manifest) -> dict:
    spec = manifest["spec"]
    return spec["pytorchReplicaSpecs"]["Worker"] if "pytorchReplicaSpecs" in spec else spec


def gpu_container(manifest) -> dict:
    return next(one for one in pod_of(manifest)["containers"] if one["name"] != "proxy")


def terms_of(manifest) -> list:
    affinity = pod_of(manifest)["affinity"]["nodeAffinity"]
    return affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]


def holds(action: str, manifest) -> None:
    """What each action asks for is there."""
    pod, container = pod_of(manifest), gpu_container(manifest)
    match action:
        case "move-sku" | "swap-placement":
            for term in terms_of(manifest):
                own = [e for e in term["matchExpressions"] if e["key"] == "node.kubernetes.io/instance-type"]
                assert [e["values"] for e in own] == [["Standard_ND96is_H100_v5"]]
            assert "nodeSelector" not in pod
        case "reduce-gpus":
            assert holder_of(manifest).get("replicas", holder_of(manifest).get("parallelism")) == 1
            assert int(container["resources"]["limits"]["nvidia.com/gpu"]) == 8
        case "mig-slice":
            for held in container["resources"].values():
                assert "nvidia.com/gpu" not in held
            assert int(container["resources"]["limits"]["nvidia.com/mig-1g.10gb"]) == 1
        case "rest-clocks":
            assert {"name": "CUDA_DISABLE_PERF_BOOST", "value": "1"} in container["env"]
        case "release":
            spec = manifest["spec"]
            stopped = (spec.get("replicas") == 0, spec.get("suspend"), spec.get("runPolicy", {}).get("suspend"))
            assert any(stopped)


@pytest.mark.parametrize("action", KUBERNETES_ACTIONS)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda one: one.name)
def test_a_patch_is_applied_and_undone_field_by_field(action: str, sample: Sample, tmp_path: Path) -> None:
    manifest = sample.of(action)
    (part,) = patch_of(action, "kubernetes", ("chat.yaml", manifest)).parts
    kind = "strategic" if sample.strategic else "merge"
    after = patched(tmp_path, manifest, "# head\n" + part.patch.text, kind)
    assert value(after)["metadata"]["annotations"]["skuwise.dev/recommendation"] == ID
    holds(action, value(after))
    assert value(after) != plain(manifest, tmp_path)
    assert value(patched(tmp_path, after, part.undo.text, kind)) == plain(manifest, tmp_path)
    anew = sample.name == "job" and action != "release" and action != "reduce-gpus"
    assert (f"--type {kind}" in part.revert[0]) is not anew
    assert ("kubectl replace --force" in part.apply[0]) is anew


def test_the_kustomization_gives_the_same(tmp_path: Path) -> None:
    action, sample = "move-sku", SAMPLES[0]
    if minor_version() < 21:
        pytest.skip("kustomize of this kubectl is too old for 'patches'")
    manifest = sample.of(action)
    made = patch_of(action, "kubernetes", ("chat.yaml", manifest))
    folder = tmp_path / "overlay"
    folder.mkdir()
    for file in (made.parts[0].patch, *made.originals, *made.more):
        (folder / file.name).write_text(file.text)
    (built,) = kustomized(folder)
    kind = "strategic" if sample.strategic else "merge"
    by_patch = value(patched(tmp_path, manifest, made.parts[0].patch.text, kind))
    holds(action, built)
    for whole in (built, by_patch):  # kustomize orders lists that are merged by name in another way
        pod_of(whole)["containers"].sort(key=lambda one: one["name"])
        for container in pod_of(whole)["containers"]:
            container.get("env", []).sort(key=lambda one: one["name"])
    assert {k: v for k, v in built.items() if k != "metadata"} == _without_empty(by_patch)


def _without_empty(manifest):
    resources = [c["resources"] for c in pod_of(manifest)["containers"] if "resources" in c]
    for one in resources:
        for key in [key for key, held in one.items() if held == {}]:
            del one[key]
    return {k: v for k, v in manifest.items() if k != "metadata"}


@pytest.mark.parametrize("given", [(), (("nodes.yaml", NODES),)], ids=["bare", "manifest"])
@pytest.mark.parametrize("action", ["consolidate", "release"])
def test_nodes_are_cordoned_and_returned(action: str, given, tmp_path: Path) -> None:
    entry = accepted(action)
    if action == "release":
        told = accepted("consolidate").proposal.ground
        assert told is not None
        entry = accepted(action, series_id=None, address=None, yardstick=told.yardstick, nodes=("n1", "n2"))
    made = patch_of(action, "kubernetes", *given, entry=entry, nodes=("n1", "n2"))
    nodes = {one["metadata"]["name"]: yaml.safe_dump(one) for one in yaml.safe_load(NODES)["items"]}
    assert [part.about for part in made.parts] == ["Node n1", "Node n2"]
    for (name, node), part in zip(nodes.items(), made.parts, strict=True):
        after = patched(tmp_path, node, part.patch.text, "strategic")
        assert value(after)["spec"]["unschedulable"] is True
        undone = value(patched(tmp_path, after, part.undo.text, "strategic"))
        if given or name == "n2":
            assert undone == plain(node, tmp_path, "strategic")
        else:
            assert "unschedulable" not in undone["spec"]


@pytest.mark.parametrize("action", ["move-sku", "reduce-gpus", "mig-slice", "release", "consolidate"])
def test_quotas_of_a_cluster_queue_are_changed_and_restored(action: str, tmp_path: Path) -> None:
    made = patch_of(action, "kueue", ("queue.yaml", CLUSTER_QUEUE))
    part = made.parts[-1]
    after = patched(tmp_path, CLUSTER_QUEUE, part.patch.text, "merge")
    (group,) = value(after)["spec"]["resourceGroups"]
    quotas = {f["name"]: {r["name"]: int(r["nominalQuota"]) for r in f["resources"]} for f in group["flavors"]}
    assert all([r["name"] for r in f["resources"]] == group["coveredResources"] for f in group["flavors"])
    gpu = "nvidia.com/gpu"
    match action:
        case "move-sku":
            assert quotas["h100-ib"][gpu] == 16
            assert quotas["azure-standard-nd96is-h100-v5"] == {"cpu": 960, gpu: 16}
        case "mig-slice":
            assert quotas == {"h100-ib": {"cpu": 960, gpu: 31, "nvidia.com/mig-1g.10gb": 7}}
        case "release":
            assert quotas["h100-ib"][gpu] == 16
        case _:
            assert quotas["h100-ib"][gpu] == 24
    assert value(patched(tmp_path, after, part.undo.text, "merge")) == plain(CLUSTER_QUEUE, tmp_path)
