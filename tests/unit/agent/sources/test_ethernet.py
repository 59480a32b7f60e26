"""The ethernet source against trees whose truth is known."""

from __future__ import annotations

from pathlib import Path

from skuwise.agent.model import Instant, Reading
from skuwise.agent.sources.fabric.ethernet import EthernetSource
from skuwise.agent.sources.fabric.infiniband import InfinibandSource
from skuwise.tests.support.sysfs_trees import Port, Sysfs, put


def at(seconds: float) -> Instant:
    return Instant(1_790_000_000 + seconds, 50 + seconds)


def netdev(root: Path, name: str, *, physical: bool = True, speed: int | str = 100_000, state: str = "up") -> Path:
    """``/sys/class/net/<name>``, on a PCI device of its own where it is physical."""
    home = root / "class/net" / name
    put(home / "type", 1)
    put(home / "operstate", state)
    put(home / "speed", speed)
    put(home / "statistics/tx_bytes", 0)
    put(home / "statistics/rx_bytes", 0)
    if physical:
        device = root / "devices/pci0000:00" / name
        device.mkdir(parents=True)
        (home / "device").symlink_to(device)
    return home


def source_on(root: Path, roles: dict[str, str] | None = None) -> EthernetSource:
    return EthernetSource(root, root / "proc", 10.0, roles)  # type: ignore[arg-type]


def reasons(reading: Reading) -> dict[tuple[str, str], str]:
    return {(a.subject, a.metric): a.reason for a in reading.absences}


def default_route(root: Path, interface: str, table: str = "net/route") -> None:
    put(
        root / "proc" / table,
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "eth9\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
        f"{interface}\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0",
    )


def test_bytes_over_measured_time_and_the_line_rate_one_way(tmp_path: Path) -> None:
    home = netdev(tmp_path, "eth0")
    source = source_on(tmp_path)
    (port,) = source.probe().ports
    assert (port.key, port.link_layer, port.role) == ("eth0/1", "Ethernet", "unknown")
    assert port.line_rate_bytes_per_second == 12.5e9
    assert reasons(source.read(at(0)))[("eth0/1", "tx_bytes_per_second")] == "first-reading"
    put(home / "statistics/tx_bytes", 4000)
    put(home / "statistics/rx_bytes", 1000)
    reading = source.read(at(2))
    assert reading.fabric == {"eth0/1": {"tx_bytes_per_second": 2000.0, "rx_bytes_per_second": 500.0}}
    assert reading.port_states == {"eth0/1": "ACTIVE"}
    assert reasons(reading) == {("eth0/1", "xmit_wait_per_second"): "not-supported"}
    source.close()


def test_only_physical_ethernet_ports_count(tmp_path: Path) -> None:
    netdev(tmp_path, "eth0")
    for name in ("lo", "docker0", "veth12ab", "bond0", "eth0.100", "cali0"):
        netdev(tmp_path, name, physical=False)
    put(netdev(tmp_path, "ib0") / "type", 32)
    (netdev(tmp_path, "wlan0") / "wireless").mkdir()
    (netdev(tmp_path, "eth0v1") / "device/physfn").mkdir()
    lower = netdev(tmp_path, "enP1s1")  # accelerated networking: its pair counts what it moves
    (lower / "master").symlink_to(netdev(tmp_path, "eth1"))
    slave = netdev(tmp_path, "eth2")  # a bond's port is a port
    (slave / "master").symlink_to(tmp_path / "class/net/bond0")
    assert [port.device for port in source_on(tmp_path).probe().ports] == ["eth0", "eth1", "eth2"]


def test_a_roce_device_is_listed_once(tmp_path: Path) -> None:
    tree = Sysfs(tmp_path)
    tree.nic("mlx5_0", ["pci0000:10", "0000:11:00.0"], Port(link_layer="Ethernet"))
    home = netdev(tmp_path, "eth4")
    (home / "device").unlink()
    (home / "device").symlink_to(tmp_path / "devices/pci0000:10/0000:11:00.0")
    source = source_on(tmp_path)
    probe = source.probe()
    assert probe.ports == ()
    assert [c.absence.reason for c in probe.capabilities if c.absence] == ["counted-as-rdma"]
    assert source.read(at(0)).fabric == {}
    assert [port.key for port in InfinibandSource(tmp_path, tuple, 10).probe().ports] == ["mlx5_0/1"]


def test_the_default_route_tells_management_through_bonds_and_vlans(tmp_path: Path) -> None:
    for name in ("eth0", "eth1", "eth2"):
        netdev(tmp_path, name)
    bond, vlan = netdev(tmp_path, "bond0", physical=False), netdev(tmp_path, "bond0.7", physical=False)
    put(vlan / "lower_bond0", "")
    put(bond / "lower_eth0", "")
    put(bond / "lower_eth1", "")
    put(bond / "lower_bond0.7", "")  # a circle must not be walked for ever
    default_route(tmp_path, "bond0.7")
    roles = {port.device: port.role for port in source_on(tmp_path).probe().ports}
    assert roles == {"eth0": "management", "eth1": "management", "eth2": "unknown"}


def test_a_port_that_is_down_is_absent_not_silent_and_asked_for_its_rate_when_it_is_up(tmp_path: Path) -> None:
    home = netdev(tmp_path, "eth0", speed=-1, state="down")
    source = source_on(tmp_path)
    assert source.probe().ports[0].line_rate_bytes_per_second is None
    reading = source.read(at(0))
    assert reading.port_states == {"eth0/1": "DOWN"}
    assert reasons(reading) == {("eth0/1", "*"): "port-not-active"}
    put(home / "operstate", "up")
    put(home / "speed", 25_000)
    source.read(at(1))
    assert source.wants_probe
    assert source.probe().ports[0].line_rate_bytes_per_second == 25e9 / 8
    source.read(at(2))
    assert not source.wants_probe


def test_a_node_without_any_is_no_fault(tmp_path: Path) -> None:
    source = source_on(tmp_path)
    assert source.probe().ports == ()
    assert source.read(at(0)) == Reading()
