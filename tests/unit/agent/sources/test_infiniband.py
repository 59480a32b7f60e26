"""The sources of ports against trees whose truth is known."""

from pathlib import Path

import pytest
from skuwise.agent.model import LinkLayer, Reading
from skuwise.agent.sources.fabric import EthernetSource, InfinibandSource, Nic, place_nics
from skuwise.tests.support.sysfs_trees import EFA_COUNTERS, Port, Sysfs, at, dgx_like, gpus_on, put, reasons

TX, RX, WAIT = "tx_bytes_per_second", "rx_bytes_per_second", "xmit_wait_per_second"
EFA = Port("Unspecified", rate="100 Gb/sec (4X EDR)", counters={}, hw_counters=EFA_COUNTERS)


def one_nic(root: Path, port: Port | None = None, driver: str = "mlx5_core") -> tuple[Sysfs, InfinibandSource]:
    tree = Sysfs(root)
    tree.nic("x_0", ["pci0000:10", "0000:11:00.0"], port or Port(), driver=driver)
    return tree, InfinibandSource(root, tuple, max_gap_seconds=10)


def test_the_devices_roles_and_rates_of_a_dgx(tmp_path: Path) -> None:
    _, bus_ids = dgx_like(tmp_path)
    source = InfinibandSource(tmp_path, gpus_on(bus_ids), 10, {"mlx5_8": "storage"})
    ports = {p.key: p for p in source.probe().ports}
    assert [ports[f"mlx5_{i}/1"].role for i in range(10)] == ["compute"] * 8 + ["storage", "unknown"]
    assert {p.line_rate_bytes_per_second for p in ports.values()} == {50e9}
    assert one_nic(tmp_path / "efa", EFA, "efa")[1].probe().ports[0].role == "compute"


@pytest.mark.parametrize(
    ("driver", "port", "layer", "line_rate", "counted", "fabric"),
    [
        ("mlx5_core", Port(), "InfiniBand", 50e9, {"port_xmit_data": 1000, "port_xmit_wait": 7}, (2000, 0, 3.5)),
        ("mlx5_core", Port("Ethernet", rate="200 Gb/sec"), "Ethernet", 25e9, {"port_rcv_data": 25}, (0, 50, 0)),
        # Flits of 8 bytes: 2e9 of them in two seconds are 8 GB/s.
        (
            "hfi1", Port(rate="100 Gb/sec (4X EDR)"), "InfiniBand", 12.5e9,
            {"port_xmit_data": 2 * 10**9, "port_rcv_data": 10**9}, (8e9, 4e9, 0),
        ),
        ("efa", EFA, "EFA", 12.5e9, {"tx_bytes": 200, "rx_bytes": 80}, (100, 40)),
        (
            "efa", EFA, "EFA", 12.5e9,
            {"tx_bytes": 200, "send_bytes": 60, "rdma_write_bytes": 900, "rdma_read_resp_bytes": 40}, (500, 0),
        ),
        (
            "efa", EFA, "EFA", 12.5e9,
            {"rx_bytes": 10, "recv_bytes": 2, "rdma_read_bytes": 20, "rdma_write_recv_bytes": 300}, (0, 161),
        ),
    ],
)  # fmt: skip
def test_the_unit_of_a_counter_is_its_drivers_and_a_rate_covers_measured_time(
    tmp_path: Path, driver: str, port: Port, layer: str, line_rate: float, counted: dict[str, int],
    fabric: tuple[float, ...],
) -> None:  # fmt: skip
    tree, source = one_nic(tmp_path, port, driver)
    (fabric_port,) = source.probe().ports
    assert (fabric_port.link_layer, fabric_port.line_rate_bytes_per_second) == (layer, line_rate)
    assert reasons(source.read(at(0)))["*" if driver != "efa" else TX] == "first-reading"
    for name, value in counted.items():
        tree.counter("x_0", name, value, folder="hw_counters" if driver == "efa" else "counters")
    reading = source.read(at(2))
    assert reading.fabric == {"x_0/1": dict(zip((TX, RX, WAIT), fabric, strict=False))}
    assert reasons(reading) == ({WAIT: "not-supported"} if driver == "efa" else {})
    assert reading.port_states == {"x_0/1": "ACTIVE"}


@pytest.mark.parametrize(
    ("name", "before", "after", "metric", "reason"),
    [
        ("port_xmit_data", 900, 5, TX, "counter-reset"),
        ("port_xmit_wait", 2**32 - 2, 1, WAIT, "counter-reset"),
        ("port_xmit_wait", 0, 2**32 - 1, WAIT, "counter-saturated"),
        ("port_rcv_data", 0, "", RX, "not-a-number"),
        ("port_rcv_data", 0, "-5", RX, "not-a-number"),
        ("port_rcv_data", 0, "N/A (no PMA)", RX, "no-pma"),
        # 400 Gb/s are 12.5e9 words a second, one way.
        ("port_rcv_data", 0, 12_500_000_000, RX, None),
        ("port_rcv_data", 0, 50_000_000_001, RX, "out-of-range"),
        ("port_xmit_data", 0, 2**63, TX, "out-of-range"),
    ],
)
def test_a_counter_without_a_rate_is_missing(
    tmp_path: Path, name: str, before: int, after: int | str, metric: str, reason: str | None
) -> None:
    counters = {"port_xmit_data": 0, "port_rcv_data": 0, "port_xmit_wait": 0}
    tree, source = one_nic(tmp_path, Port(counters={**counters, name: before}))
    source.probe()
    source.read(at(0))
    tree.counter("x_0", name, after)
    reading = source.read(at(1))
    assert reasons(reading) == ({metric: reason} if reason else {})
    assert set(reading.fabric["x_0/1"]) == {TX, RX, WAIT} - ({metric} if reason else set())
    tree.counter("x_0", name, 10**12)
    source.read(at(2))
    assert reasons(source.read(at(20))) == {"*": "long-gap"}
    assert source.read(at(21)).absences == frozenset()


@pytest.mark.parametrize(
    ("port", "state", "reason"),
    [
        (Port(state="1: DOWN", rate="10 Gb/sec (4X SDR)"), "DOWN", "port-not-active"),
        (Port(state="5: ACTIVE_DEFER"), "ACTIVE_DEFER", "port-not-active"),
        (Port(counters=dict.fromkeys(("port_xmit_data", "port_rcv_data"), "N/A (no PMA)")), "ACTIVE", "no-pma"),
        (Port("Ethernet", counters={}, hw_counters={"ip4InOctets": 4}), "ACTIVE", "unknown-counters"),  # irdma
    ],
)
def test_a_port_that_tells_nothing_is_absent_not_silent(tmp_path: Path, port: Port, state: str, reason: str) -> None:
    _, source = one_nic(tmp_path, port)
    probe = source.probe()
    assert reason in {line.absence.reason for line in probe.capabilities if line.absence}
    assert (probe.ports[0].line_rate_bytes_per_second is None) == (reason == "port-not-active")
    for second in (0, 1):
        reading = source.read(at(second))
        assert (reading.fabric, reading.port_states) == ({}, {"x_0/1": state})
        assert reason in reasons(reading).values()


def test_a_refused_file_is_not_read_again(tmp_path: Path) -> None:
    _, source = one_nic(tmp_path)
    refused = tmp_path / "class/infiniband/x_0/ports/1/counters/port_xmit_wait"
    refused.unlink()
    refused.mkdir()  # reading a directory fails as reading a restricted counter does
    source.probe()
    source.read(at(0))
    refused.rmdir()
    refused.write_text("5\n")
    reading = source.read(at(1))
    assert reasons(reading) == {WAIT: "restricted"}
    assert reading.fabric["x_0/1"] == {TX: 0.0, RX: 0.0}
    source.probe()  # not even after another look: each try would write to the kernel's log
    assert reasons(source.read(at(2)))[WAIT] == "restricted"


def test_a_device_that_is_unplugged_is_absent_until_it_is_back_and_a_new_one_asks_for_a_probe(tmp_path: Path) -> None:
    tree, source = one_nic(tmp_path)
    source.probe()
    source.read(at(0))
    link = tmp_path / "class/infiniband/x_0"
    target = link.readlink()
    link.unlink()
    assert reasons(source.read(at(10))) == {"*": "device-gone"}
    link.symlink_to(target)
    assert reasons(source.read(at(11))) == {"*": "first-reading"}
    assert source.read(at(12)).absences == frozenset()
    assert not source.wants_probe
    tree.nic("x_1", None)
    source.read(at(30))
    assert source.wants_probe
    assert [p.device for p in source.probe().ports] == ["x_0", "x_1"]
    assert not source.wants_probe


def test_a_node_without_ports_is_one_absence_of_infiniband_and_no_fault_of_ethernet(tmp_path: Path) -> None:
    source = InfinibandSource(tmp_path, gpus_on(["00000000:1B:00.0"]), 10)
    (line,) = source.probe().capabilities
    (absence,) = source.read(at(0)).absences
    assert line.absence == absence
    assert (absence.scope, absence.subject, absence.reason) == ("source", "infiniband", "no-fabric")
    assert source_on(tmp_path).probe().ports == ()
    assert source_on(tmp_path).read(at(0)) == Reading()


def netdev(root: Path, name: str, *, physical: bool = True, speed: int | str = 100_000, state: str = "up") -> Path:
    """``/sys/class/net/<name>``, on a separate PCI device where it is physical."""
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


def source_on(root: Path) -> EthernetSource:
    return EthernetSource(root, 10.0)


def test_ethernet_counts_bytes_over_measured_time_of_a_port_that_is_up(tmp_path: Path) -> None:
    home = netdev(tmp_path, "eth0", speed=-1, state="down")
    source = source_on(tmp_path)
    assert source.probe().ports[0].line_rate_bytes_per_second is None
    reading = source.read(at(0))
    assert (reading.port_states, reasons(reading)) == ({"eth0/1": "DOWN"}, {"*": "port-not-active"})
    put(home / "operstate", "up")
    put(home / "speed", 25_000)
    source.read(at(1))
    assert source.wants_probe  # its line rate is to be asked
    (port,) = source.probe().ports
    assert (port.key, port.link_layer, port.role) == ("eth0/1", "Ethernet", "unknown")
    assert port.line_rate_bytes_per_second == 25e9 / 8
    assert reasons(source.read(at(2)))[TX] == "first-reading"
    put(home / "statistics/tx_bytes", 4000)
    put(home / "statistics/rx_bytes", 1000)
    reading = source.read(at(4))
    assert (reading.fabric, reading.port_states) == ({"eth0/1": {TX: 2000.0, RX: 500.0}}, {"eth0/1": "ACTIVE"})
    assert reasons(reading) == {WAIT: "not-supported"}
    assert not source.wants_probe


def test_only_physical_ethernet_ports_count_and_a_roce_device_is_listed_once(tmp_path: Path) -> None:
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
    _, rdma = one_nic(tmp_path, Port("Ethernet"))
    roce = netdev(tmp_path, "eth4", physical=False)
    (roce / "device").symlink_to(tmp_path / "devices/pci0000:10/0000:11:00.0")
    probe = source_on(tmp_path).probe()
    assert [port.device for port in probe.ports] == ["eth0", "eth1", "eth2"]
    assert [c.subject for c in probe.capabilities if c.absence and c.absence.reason == "counted-as-rdma"] == ["eth4/1"]
    assert [port.key for port in rdma.probe().ports] == ["x_0/1"]


def nic(device: str, *path: str, layer: LinkLayer = "InfiniBand") -> Nic:
    return Nic(device, path, layer)


SWITCH = ("pci0000:10", "0000:10:01.0", "0000:11:00.0")


ON_SWITCH = [(*SWITCH, "0000:12:00.0", "a"), (*SWITCH, "0000:12:01.0", "b"), ("pci0000:20", "p", "c")]
ON_ROOTS = [("pci0000:10", "p0", "g0"), ("pci0000:20", "p0", "g1")]
FLAT_GPUS = [(f"pci000{i}:00", f"g{i}") for i in range(2)]
FLAT_NICS = [nic(f"n{i}", f"pci010{i}:00", f"n{i}") for i in range(2)]


@pytest.mark.parametrize(
    ("nics", "gpus", "roles"),
    [
        # A shared switch makes compute.
        ([nic("n", *SWITCH, "0000:12:02.0", "n")], ON_SWITCH, ["compute"]),
        # The root complex alone counts where nothing is nearer, and not beside a nearer NIC.
        ([nic(f"n{root}", f"pci0000:{root}", "p1", "n") for root in (10, 20, 30)], ON_ROOTS,
         ["compute", "compute", "unknown"]),
        ([nic("n", *SWITCH, "n"), nic("s", "pci0000:10", "0000:10:02.0", "s"), nic("x", "pci0000:40", "x")],
         [(*SWITCH, "g0")], ["compute", "unknown", "unknown"]),
        # As many InfiniBand NICs as GPUs are compute where the tree is flat.
        (FLAT_NICS, FLAT_GPUS, ["compute", "compute"]),
        (FLAT_NICS[:1], FLAT_GPUS, ["unknown"]),
        # Azure's names show where the tree does not.
        ([nic("mlx5_ib0", "pci0101:00", "a"), nic("mlx5_an0", "pcif123:00", "b", layer="Ethernet")],
         [(f"pci000{i}:00", "g") for i in range(8)], ["compute", "unknown"]),
    ],
)  # fmt: skip
def test_roles_by_the_places_of_nics_and_gpus(nics: list[Nic], gpus: list[tuple[str, ...]], roles: list[str]) -> None:
    placed = place_nics(nics, gpus, len(gpus))
    assert [placed[nic.device][0] for nic in nics] == roles
