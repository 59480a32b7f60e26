"""MIG configurations name the GPUs to divide alone, there and back."""

from __future__ import annotations

import pytest
import yaml
from skuwise.advisor.patches.model import PatchFile
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.patch_cases import GROUNDS, MIG_STATE, accepted, patch_of

GIVEN = ("state.yaml", MIG_STATE)
MIXED = """\
version: v1
mig-configs:
  current:
  - device-filter: "0x233010DE"
    devices: all
    mig-enabled: false
  - device-filter: "0x20B010DE"
    devices: [4]
    mig-enabled: true
    mig-devices: {1g.10gb: 7}
"""


def configs(file: PatchFile) -> dict:
    return yaml.safe_load(file.text)["mig-configs"]


def test_gpus_that_are_divided_for_others_are_in_no_entry() -> None:
    made = patch_of("mig-slice", "nvidia", GIVEN, devices=(5,))
    (part,) = made.parts
    ((name, patched),) = configs(part.patch).items()
    ((back, undone),) = configs(part.undo).items()
    assert [(entry["devices"], entry["mig-enabled"]) for entry in patched] == [([5], True)]
    assert undone == [{"devices": [5], "mig-enabled": False, "mig-devices": {}}]
    assert part.apply == (f"sudo nvidia-mig-parted apply -f mig-parted.yaml -c {name}",)
    assert part.revert == (f"sudo nvidia-mig-parted apply -f undo-mig-parted.yaml -c {back}",)
    assert not any("loses" in note for note in made.notes)


def test_without_an_export_the_undo_turns_off_only_what_was_divided() -> None:
    (part,) = patch_of("mig-slice", "nvidia", devices=(3, 5)).parts
    ((entry,),) = configs(part.undo).values()
    assert entry == {"devices": [3, 5], "mig-enabled": False}


def test_a_gpu_in_use_is_divided_only_where_it_was_typed() -> None:
    with pytest.raises(UsageError, match="GPU 0 is divided already") as caught:
        patch_of("mig-slice", "nvidia", GIVEN)
    assert "--device" in caught.value.remedy
    made = patch_of("mig-slice", "nvidia", GIVEN, devices=(1, 2))
    assert "GPU 1 loses its instances of now: 3g.40gb." in made.notes
    ((used, free),) = configs(made.parts[0].undo).values()
    assert used == {"devices": [1], "mig-enabled": True, "mig-devices": {"3g.40gb": 2}}
    assert free["devices"] == [2]


def test_filters_by_type_stay_in_the_undo() -> None:
    ((one,),) = configs(patch_of("mig-slice", "nvidia", ("s.yaml", MIXED), devices=(2,)).parts[0].undo).values()
    assert one == {"device-filter": "0x233010DE", "devices": [2], "mig-enabled": False}
    ((*_, other),) = configs(patch_of("mig-slice", "nvidia", ("s.yaml", MIXED), devices=(4,)).parts[0].undo).values()
    assert (other["device-filter"], other["devices"]) == ("0x20B010DE", [4])


def test_an_export_is_of_one_node() -> None:
    many = accepted("mig-slice", **{**GROUNDS["mig-slice"], "nodes": ("n1", "n2")})
    with pytest.raises(UsageError, match="one node") as caught:
        patch_of("mig-slice", "nvidia", GIVEN, entry=many, devices=(5,))
    assert "--node" in caught.value.remedy
    assert len(patch_of("mig-slice", "nvidia", GIVEN, entry=many, devices=(5,), nodes=("n2",)).parts) == 1
    with pytest.raises(UsageError, match="one node"):
        patch_of("mig-slice", "nvidia", GIVEN, GIVEN, devices=(5,))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mig-configs: [a]\n", "not the state of one node"),
        ("mig-configs: {a: [], b: []}\n", "not the state of one node"),
        ("mig-configs: {a: [x]}\n", "does not write"), ("mig-configs: {a: {devices: all}}\n", "does not write"),
        ("mig-configs: {a: [{devices: [true], mig-enabled: false}]}\n", "does not write"),
        ("mig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: [x]}]}\n", "does not write"),
        ("mig-configs: {a: [{devices: [0, 1], mig-enabled: false}]}\n", "does not show GPU 5"),
    ],
)  # fmt: skip
def test_another_file_than_an_export_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        patch_of("mig-slice", "nvidia", ("state.yaml", text), devices=(5,))
    assert "nvidia-mig-parted export" in caught.value.remedy
