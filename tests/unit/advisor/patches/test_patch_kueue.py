"""Quotas of a ClusterQueue: flavors that exist are neither created nor deleted, and limits stay valid."""

from __future__ import annotations

import pytest
import yaml
from skuwise.advisor.patches.model import PatchFile
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.patch_cases import CLUSTER_QUEUE, patch_of

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
