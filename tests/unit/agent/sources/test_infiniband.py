"""The infiniband source against trees whose truth is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from skuwise.agent.model import Instant, Reading
from skuwise.agent.sources.fabric.infiniband import InfinibandSource
from skuwise.tests.support.sysfs_trees import Port, Sysfs, dgx_like, efa_like, gpus_on

COUNTERS = "class/infiniband/mlx5_0/ports/1/counters"


def at(seconds: float) -> Instant:
    return Instant(1_700_000_000 + seconds, 50 + seconds)


def reasons(reading: Reading) -> dict[tuple[str, str], str]:
    return {(a.subject, a.metric): a.reason for a in reading.absences}


def one_nic(tmp_path: Path, *ports: Port) -> tuple[Sysfs, InfinibandSource]:
    tree = Sysfs(tmp_path)
    tree.nic("mlx5_0", ["pci0000:10", "0000:11:00.0"], *ports)
    source = InfinibandSource(tmp_path, tuple, max_gap_seconds=10)
    return tree, source


def test_words_of_four_bytes_over_measured_time(tmp_path: Path) -> None:
    tree, source = one_nic(tmp_path)
    source.probe()
    assert reasons(source.read(at(0))) == {("mlx5_0/1", "*"): "first-reading"}
    tree.counter("mlx5_0", "port_xmit_data", 1000)
    tree.counter("mlx5_0", "port_rcv_data", 500)
    tree.counter("mlx5_0", "port_xmit_wait", 7)
    reading = source.read(at(2))
    assert reading.fabric == {
        "mlx5_0/1": {"tx_bytes_per_second": 2000.0, "rx_bytes_per_second": 1000.0, "xmit_wait_per_second": 3.5}
    }
    assert reading.port_states == {"mlx5_0/1": "ACTIVE"}
    assert reading.absences == frozenset()


def test_the_devices_roles_rates_and_layers_of_a_dgx(tmp_path: Path) -> None:
    _, bus_ids = dgx_like(tmp_path)
    source = InfinibandSource(tmp_path, gpus_on(bus_ids), 10, {"mlx5_8": "storage"})
    ports = {p.key: p for p in source.probe().ports}
    assert [ports[f"mlx5_{i}/1"].role for i in range(10)] == ["compute"] * 8 + ["storage", "unknown"]
    assert {p.line_rate_bytes_per_second for p in ports.values()} == {50e9}


def test_roce_counts_like_infiniband(tmp_path: Path) -> None:
    tree, source = one_nic(tmp_path, Port(link_layer="Ethernet", rate="200 Gb/sec (4X HDR)"))
    (port,) = source.probe().ports
    assert (port.link_layer, port.line_rate_bytes_per_second) == ("Ethernet", 25e9)
    source.read(at(0))
    tree.counter("mlx5_0", "port_xmit_data", 25)
    assert source.read(at(1)).fabric["mlx5_0/1"]["tx_bytes_per_second"] == 100.0


@pytest.mark.parametrize(
    ("deltas", "tx", "rx"),
    [
        ({"tx_bytes": 100, "rx_bytes": 40}, 100.0, 40.0),
        ({"tx_bytes": 100, "send_bytes": 60, "rdma_write_bytes": 900, "rdma_read_resp_bytes": 5}, 965.0, 0.0),
        ({"rx_bytes": 10, "recv_bytes": 1, "rdma_read_bytes": 20, "rdma_write_recv_bytes": 300}, 0.0, 321.0),
    ],
)
def test_efa_counts_bytes_and_takes_the_greater_family(
    tmp_path: Path, deltas: dict[str, int], tx: float, rx: float
) -> None:
    tree, bus_ids = efa_like(tmp_path, 1)
    source = InfinibandSource(tmp_path, gpus_on(bus_ids), 10)
    (port,) = source.probe().ports
    assert (port.link_layer, port.role, port.line_rate_bytes_per_second) == ("EFA", "compute", 12.5e9)
    source.read(at(0))
    for name, value in deltas.items():
        tree.counter("rdmap0s0", name, value, folder="hw_counters")
    reading = source.read(at(1))
    assert reading.fabric["rdmap0s0/1"] == {"tx_bytes_per_second": tx, "rx_bytes_per_second": rx}
    assert reasons(reading) == {("rdmap0s0/1", "xmit_wait_per_second"): "not-supported"}


@pytest.mark.parametrize("state", ["1: DOWN", "2: INIT", "3: ARMED", "5: ACTIVE_DEFER"])
def test_a_port_that_is_not_active_is_absent_not_silent(tmp_path: Path, state: str) -> None:
    _, source = one_nic(tmp_path, Port(state=state, rate="10 Gb/sec (4X SDR)"))
    (port,) = source.probe().ports
    assert port.line_rate_bytes_per_second is None
    source.read(at(0))
    reading = source.read(at(1))
    assert reading.fabric == {}
    assert reading.port_states == {"mlx5_0/1": state.split(": ")[1]}
    assert reasons(reading) == {("mlx5_0/1", "*"): "port-not-active"}


def test_resets_wraps_and_long_gaps_are_gaps(tmp_path: Path) -> None:
    tree, source = one_nic(
        tmp_path, Port(counters={"port_xmit_data": 900, "port_rcv_data": 0, "port_xmit_wait": 2**32 - 2})
    )
    source.probe()
    source.read(at(0))
    tree.counter("mlx5_0", "port_xmit_data", 5)
    tree.counter("mlx5_0", "port_xmit_wait", 1)
    reading = source.read(at(1))
    assert reading.fabric == {"mlx5_0/1": {"rx_bytes_per_second": 0.0}}
    assert reasons(reading) == {
        ("mlx5_0/1", "tx_bytes_per_second"): "counter-reset",
        ("mlx5_0/1", "xmit_wait_per_second"): "counter-reset",
    }
    assert reasons(source.read(at(12))) == {("mlx5_0/1", "*"): "long-gap"}
    assert source.read(at(13)).absences == frozenset()


def test_no_pma_is_missing(tmp_path: Path) -> None:
    no_pma: dict[str, int | str] = dict.fromkeys(("port_xmit_data", "port_rcv_data", "port_xmit_wait"), "N/A (no PMA)")
    _, source = one_nic(tmp_path, Port(counters=no_pma))
    assert {line.absence.reason for line in source.probe().capabilities if line.absence} == {"no-pma"}
    source.read(at(0))
    reading = source.read(at(1))
    assert reading.fabric == {}
    assert reasons(reading) == {("mlx5_0/1", "*"): "no-pma"}


@pytest.mark.parametrize("text", ["", "-5", "lots"])
def test_text_that_is_no_number_is_missing(tmp_path: Path, text: str) -> None:
    tree, source = one_nic(tmp_path)
    source.probe()
    tree.counter("mlx5_0", "port_xmit_data", text)
    source.read(at(0))
    assert reasons(source.read(at(1))) == {("mlx5_0/1", "tx_bytes_per_second"): "not-a-number"}


def test_a_refused_file_is_not_read_again(tmp_path: Path) -> None:
    tree = Sysfs(tmp_path)
    tree.nic("mlx5_0", None)
    refused = tmp_path / COUNTERS / "port_xmit_wait"
    refused.unlink()
    refused.mkdir()  # reading a directory fails as reading a restricted counter does
    source = InfinibandSource(tmp_path, tuple, 10)
    source.probe()
    source.read(at(0))
    refused.rmdir()
    refused.write_text("5\n")
    reading = source.read(at(1))
    assert reasons(reading) == {("mlx5_0/1", "xmit_wait_per_second"): "restricted"}
    assert reading.fabric["mlx5_0/1"] == {"tx_bytes_per_second": 0.0, "rx_bytes_per_second": 0.0}
    source.probe()  # not even after another look: each try would write to the kernel's log
    assert reasons(source.read(at(2)))[("mlx5_0/1", "xmit_wait_per_second")] == "restricted"


def test_unknown_counters_are_said_to_be(tmp_path: Path) -> None:
    _, source = one_nic(tmp_path, Port(link_layer="Ethernet", counters={}, hw_counters={"ip4InOctets": 4}))
    (line,) = source.probe().capabilities
    assert line.absence is not None and line.absence.reason == "unknown-counters"
    reading = source.read(at(0))
    assert reading.port_states == {"mlx5_0/1": "ACTIVE"}
    assert reasons(reading) == {("mlx5_0/1", "*"): "unknown-counters"}


def test_a_new_device_asks_for_a_probe(tmp_path: Path) -> None:
    tree, source = one_nic(tmp_path)
    source.probe()
    source.read(at(0))
    assert not source.wants_probe
    tree.nic("mlx5_1", None)
    source.read(at(10))
    assert source.wants_probe
    assert [p.device for p in source.probe().ports] == ["mlx5_0", "mlx5_1"]
    assert not source.wants_probe


def test_no_fabric_is_one_absence_of_the_source(tmp_path: Path) -> None:
    source = InfinibandSource(tmp_path, gpus_on(["00000000:1B:00.0"]), 10)
    (line,) = source.probe().capabilities
    (absence,) = source.read(at(0)).absences
    assert line.absence == absence
    assert (absence.scope, absence.subject, absence.metric, absence.reason) == (
        "source", "infiniband", "*", "no-fabric",
    )  # fmt: skip
