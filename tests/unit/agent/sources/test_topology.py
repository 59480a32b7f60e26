"""Which NIC serves which GPU, from PCI paths alone."""

from __future__ import annotations

import pytest
from skuwise.agent.model import LinkLayer
from skuwise.agent.sources.fabric.pci_topology import Nic, configured_role, place_nics, sysfs_bus_id


def nic(device: str, *path: str, layer: LinkLayer = "InfiniBand") -> Nic:
    return Nic(device, path, layer)


SWITCH = ("pci0000:10", "0000:10:01.0", "0000:11:00.0")


@pytest.mark.parametrize(
    ("nvml", "sysfs"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("00000001:00:00.0", "0001:00:00.0"),
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("1B:00.0", "0000:1b:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),
        ("", None),
        ("../../etc", None),
        ("00000000:1B:00.9", None),
    ],
)
def test_bus_ids_as_sysfs_writes_them(nvml: str, sysfs: str | None) -> None:
    assert sysfs_bus_id(nvml) == sysfs


def test_a_shared_switch_makes_compute_and_names_the_gpus() -> None:
    gpus = {"a": (*SWITCH, "0000:12:00.0", "a"), "b": (*SWITCH, "0000:12:01.0", "b"), "c": ("pci0000:20", "p", "c")}
    placed = place_nics([nic("n", *SWITCH, "0000:12:02.0", "n")], gpus, 3, {})["n"]
    assert (placed.role, placed.gpu_pci_bus_ids) == ("compute", ("a", "b"))


def test_the_root_complex_alone_counts_where_nothing_is_nearer() -> None:
    gpus = {"g0": ("pci0000:10", "p0", "g0"), "g1": ("pci0000:20", "p0", "g1")}
    nics = [nic("n0", "pci0000:10", "p1", "n0"), nic("n1", "pci0000:20", "p1", "n1"), nic("s", "pci0000:30", "p1", "s")]
    placed = place_nics(nics, gpus, 2, {})
    assert [placed[d].role for d in ("n0", "n1", "s")] == ["compute", "compute", "unknown"]
    assert placed["n1"].gpu_pci_bus_ids == ("g1",)


def test_the_root_complex_alone_does_not_count_beside_a_nearer_nic() -> None:
    gpus = {"g0": (*SWITCH, "g0")}
    nics = [nic("near", *SWITCH, "n"), nic("storage", "pci0000:10", "0000:10:02.0", "s"), nic("x", "pci0000:40", "x")]
    placed = place_nics(nics, gpus, 1, {})
    assert [placed[d].role for d in ("near", "storage", "x")] == ["compute", "unknown", "unknown"]


def test_one_root_complex_for_all_tells_nothing() -> None:
    gpus = {"g0": ("pci0000:00", "0000:00:05.0"), "g1": ("pci0000:00", "0000:00:06.0")}
    placed = place_nics([nic("n", "pci0000:00", "0000:00:07.0", layer="Ethernet")], gpus, 2, {})["n"]
    assert (placed.role, placed.gpu_pci_bus_ids) == ("unknown", ())


def test_as_many_infiniband_nics_as_gpus_are_compute_where_the_tree_is_flat() -> None:
    gpus = {f"g{i}": (f"pci000{i}:00", f"g{i}") for i in range(2)}
    nics = [nic(f"n{i}", f"pci010{i}:00", f"n{i}") for i in range(2)]
    assert {p.role for p in place_nics(nics, gpus, 2, {}).values()} == {"compute"}
    assert {p.role for p in place_nics(nics[:1], gpus, 2, {}).values()} == {"unknown"}


def test_azure_names_tell_where_the_tree_does_not() -> None:
    nics = [nic("mlx5_ib0", "pci0101:00", "a"), nic("mlx5_an0", "pcif123:00", "b", layer="Ethernet")]
    placed = place_nics(nics, {f"g{i}": (f"pci000{i}:00", "g") for i in range(8)}, 8, {})
    assert [p.role for p in placed.values()] == ["compute", "management"]


def test_configuration_wins_and_keeps_the_gpus() -> None:
    placed = place_nics([nic("n", *SWITCH, "n")], {"g": (*SWITCH, "g")}, 1, {"n": "storage"})["n"]
    assert (placed.role, placed.basis, placed.gpu_pci_bus_ids) == ("storage", "configured", ("g",))


def test_an_exact_name_beats_a_pattern() -> None:
    assert configured_role("mlx5_1", {"mlx5_*": "compute", "mlx5_1": "storage"}) == "storage"
    assert configured_role("mlx5_2", {"mlx5_*": "compute", "mlx5_1": "storage"}) == "compute"
    assert configured_role("irdma0", {"mlx5_*": "compute"}) is None
