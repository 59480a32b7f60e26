"""Patched manifests against Kubernetes' own schemas, and flavors and quotas against the form that Kueue takes."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml
from skuwise.tests.support.kubectl import patched
from skuwise.tests.support.kubernetes_schemas import validate, validator  # noqa: F401 - a fixture
from skuwise.tests.support.patch_cases import (
    CLUSTER_QUEUE,
    KUBERNETES_ACTIONS,
    NODES,
    SAMPLES,
    patch_of,
)

NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
QUANTITY = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?[A-Za-z]{0,2}$"}]
}
# The fields that patches have, by Kueue's API types (apis/kueue/v1beta1/clusterqueue_types.go, commit 00b014c, and the
# CRD of ResourceFlavor, commit 01ed66f; read 2026-11-25), unknown ones refused as an API server prunes them.
HEAD = {
    "apiVersion": {"enum": ["kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"]},
    "metadata": {"type": "object", "required": ["name"], "properties": {"name": {"pattern": NAME, "maxLength": 253}}},
}
FLAVOR = {
    "type": "object", "required": ["apiVersion", "kind", "metadata"], "additionalProperties": False,
    "properties": {
        **HEAD, "kind": {"const": "ResourceFlavor"},
        "spec": {"type": "object", "additionalProperties": False, "properties": {
            "nodeLabels": {"type": "object", "maxProperties": 8, "additionalProperties": {"type": "string"}},
        }},
    },
}  # fmt: skip
QUOTAS = {
    "type": "object", "required": ["name", "resources"], "additionalProperties": False,
    "properties": {
        "name": {"pattern": NAME, "maxLength": 253},
        "resources": {"type": "array", "minItems": 1, "maxItems": 64, "items": {
            "type": "object", "required": ["name", "nominalQuota"], "additionalProperties": False,
            "properties": {"name": {"type": "string"}, "nominalQuota": QUANTITY, "borrowingLimit": QUANTITY,
                           "lendingLimit": QUANTITY},
        }},
    },
}  # fmt: skip
QUEUE = {
    "type": "object", "required": ["apiVersion", "kind", "metadata", "spec"], "additionalProperties": False,
    "properties": {
        **HEAD, "kind": {"const": "ClusterQueue"},
        "spec": {"type": "object", "properties": {"resourceGroups": {
            "type": "array", "maxItems": 16, "items": {
                "type": "object", "required": ["coveredResources", "flavors"], "additionalProperties": False,
                "properties": {
                    "coveredResources": {"type": "array", "minItems": 1, "maxItems": 64, "uniqueItems": True},
                    "flavors": {"type": "array", "minItems": 1, "maxItems": 64, "items": QUOTAS},
                },
            },
        }}},
    },
}  # fmt: skip


@pytest.mark.parametrize("action", ["move-sku", "reduce-gpus", "mig-slice", "release", "consolidate"])
def test_a_queue_is_what_kueue_takes(action: str, tmp_path: Path) -> None:
    made = patch_of(action, "kueue", ("queue.yaml", CLUSTER_QUEUE))
    after = yaml.safe_load(patched(tmp_path, CLUSTER_QUEUE, made.parts[-1].patch.text, "merge"))
    jsonschema.validate(after, QUEUE)
    for group in after["spec"]["resourceGroups"]:  # its validation rule of a resource group
        assert all([r["name"] for r in f["resources"]] == group["coveredResources"] for f in group["flavors"])
    if action == "move-sku":
        flavor, queue = made.parts
        jsonschema.validate(yaml.safe_load(flavor.patch.text), FLAVOR)
        names = [f["name"] for g in after["spec"]["resourceGroups"] for f in g["flavors"]]
        assert yaml.safe_load(flavor.patch.text)["metadata"]["name"] in names
        assert flavor.revert == ("kubectl delete resourceflavor.kueue.x-k8s.io azure-standard-nd96is-h100-v5",)
        assert queue.revert[0].startswith("kubectl patch clusterqueue.kueue.x-k8s.io gpus --type merge")
    (alone,) = patch_of("move-sku", "kueue").parts
    jsonschema.validate(yaml.safe_load(alone.patch.text), FLAVOR)


def test_a_flavor_that_is_there_gets_the_quota() -> None:
    both = yaml.safe_load(CLUSTER_QUEUE)
    (group,) = both["spec"]["resourceGroups"]
    l40s = {
        "name": "plain",
        "resources": [{"name": "cpu", "nominalQuota": 1}, {"name": "nvidia.com/gpu", "nominalQuota": "8"}],
    }
    group["flavors"].append(l40s)
    given = ("queue.yaml", yaml.safe_dump(both))
    (part,) = patch_of("move-sku", "kueue", given, flavor="h100-ib", target_flavor="plain").parts
    (changed,) = yaml.safe_load(part.patch.text)["spec"]["resourceGroups"]
    assert [r["nominalQuota"] for f in changed["flavors"] for r in f["resources"]] == ["960", 16, 1, "24"]


@pytest.mark.slow
def test_every_patched_manifest_is_what_kubernetes_takes(tmp_path: Path, validator: Path) -> None:  # noqa: F811
    files = []
    for sample in SAMPLES:
        for action in KUBERNETES_ACTIONS if sample.strategic else ():
            text = sample.of(action)
            (part,) = patch_of(action, "kubernetes", ("m.yaml", text)).parts
            after = patched(tmp_path, text, part.patch.text, "strategic")
            files.append(tmp_path / f"{sample.name}-{action}.yaml")
            files[-1].write_text(after)
            files.append(tmp_path / f"{sample.name}-{action}-undone.yaml")
            files[-1].write_text(patched(tmp_path, after, part.undo.text, "strategic"))
    off = patch_of("schedule-off", "kubernetes", ("m.yaml", SAMPLES[0].of("")), image="example.org/kubectl:1.32")
    (tmp_path / "off.yaml").write_text(off.parts[0].patch.text)
    cordon = patch_of("consolidate", "kubernetes", ("nodes.yaml", NODES)).parts[0]
    node = yaml.safe_dump(yaml.safe_load(NODES)["items"][1])
    (tmp_path / "node.yaml").write_text(patched(tmp_path, node, cordon.patch.text, "strategic"))
    files += [tmp_path / "off.yaml", tmp_path / "node.yaml"]
    for version in ("1.27", "1.37"):
        done = validate(validator, version, *files)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (done.stdout + done.stderr).count("passed for resource") == len(files) - 1 + 5


def test_the_schedule_scales_to_nothing_and_back() -> None:
    (part,) = patch_of(
        "schedule-off", "kubernetes", ("m.yaml", SAMPLES[0].of("")), image="example.org/kubectl:1.32"
    ).parts
    made = list(yaml.safe_load_all(part.patch.text))
    jobs = {one["metadata"]["name"]: one["spec"] for one in made if one["kind"] == "CronJob"}
    commands = {
        spec["schedule"]: spec["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["command"]
        for spec in jobs.values()
    }
    scale = ["kubectl", "scale", "deployments.apps", "chat", "-n", "llm", "--replicas"]
    assert commands == {"0 22 * * *": [*scale, "0"], "0 6 * * *": [*scale, "2"]}
    (role,) = [one for one in made if one["kind"] == "Role"]
    assert all(rule["resourceNames"] == ["chat"] for rule in role["rules"])
    undone = {(one["kind"], one["metadata"]["name"]) for one in yaml.safe_load_all(part.undo.text)}
    assert undone == {(one["kind"], one["metadata"]["name"]) for one in made}
    assert part.revert[1] == "kubectl scale deployment.apps chat -n llm --replicas 2"
