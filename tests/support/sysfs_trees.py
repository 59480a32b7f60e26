"""Builders of sysfs and procfs trees: known nodes, and processes with known truth."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from skuwise.agent.model import Gpu, Instant, Reading

BOOT_ID = "0f6f2a3e-7c1b-4f7e-9a55-2f4f9f6f1c11"


@dataclass(frozen=True)
class Port:
    """One port's files. A counter given as text is written as it stands."""

    link_layer: str = "InfiniBand"
    state: str = "4: ACTIVE"
    rate: str = "400 Gb/sec (4X NDR)"
    counters: Mapping[str, int | str] = field(
        default_factory=lambda: {"port_xmit_data": 0, "port_rcv_data": 0, "port_xmit_wait": 0}
    )
    hw_counters: Mapping[str, int | str] = field(default_factory=dict)


class Sysfs:
    """A sysfs tree under `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def pci(self, *parts: str) -> Path:
        """A device directory such as ``pci0000:15/0000:15:01.0/0000:18:00.0`` and its link under bus/pci/devices."""
        device = self.root.joinpath("devices", *parts)
        device.mkdir(parents=True, exist_ok=True)
        link = self.root / "bus/pci/devices" / parts[-1]
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(device)
        return device

    def nic(self, name: str, pci: Sequence[str] | None, *ports: Port, driver: str = "mlx5_core") -> Path:
        """An RDMA device (``/sys/class/infiniband/<name>``) on a PCI function, or on none."""
        parent = self.pci(*pci) if pci else self.root / "devices/virtual" / name
        home = parent / "infiniband" / name
        (self.root / "bus/drivers" / driver).mkdir(parents=True, exist_ok=True)
        for number, port in enumerate(ports or (Port(),), start=1):
            folder = home / "ports" / str(number)
            (folder / "counters").mkdir(parents=True)
            put(folder / "link_layer", port.link_layer)
            put(folder / "state", port.state)
            put(folder / "rate", port.rate)
            for counter, value in port.counters.items():
                put(folder / "counters" / counter, value)
            for counter, value in port.hw_counters.items():
                put(folder / "hw_counters" / counter, value)
        if pci:
            (home / "device").symlink_to(parent)
            if not (parent / "driver").is_symlink():
                (parent / "driver").symlink_to(self.root / "bus/drivers" / driver)
        link = self.root / "class/infiniband" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(home)
        return link

    def counter(self, device: str, name: str, value: int | str, folder: str = "counters") -> None:
        put(self.root / "class/infiniband" / device / "ports/1" / folder / name, value)

    def disk(self, name: str, *, physical: bool = True) -> None:
        home = self.root / "block" / name
        home.mkdir(parents=True)
        if physical:
            (home / "device").mkdir()

    def dmi(self, **fields: str) -> None:
        for name, text in fields.items():
            put(self.root / "class/dmi/id" / name, text)


def put(path: Path, value: int | str | bytes) -> None:
    """Write one attribute, with the newline that the kernel ends it with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(value, bytes):
        path.write_bytes(value)
    else:
        path.write_text(f"{value}\n")


def at(seconds: float) -> Instant:
    """A reading's instant, with a monotonic clock from 0."""
    return Instant(1.8e9 + seconds, seconds)


def reasons(reading: Reading) -> dict[str, str]:
    """Why a metric is missing."""
    return {absence.metric: absence.reason for absence in reading.absences}


def gpus_on(bus_ids: Sequence[str]) -> Callable[[], list[Gpu]]:
    """GPUs at these places of the PCI tree, as a source asks for them."""
    return lambda: [Gpu(f"GPU-{place}", place, "GPU", pci_bus_id=entry) for place, entry in enumerate(bus_ids)]


def dgx_like(root: Path) -> tuple[Sysfs, list[str]]:
    """8 GPUs and 8 NDR NICs in pairs behind switches, 2 storage NICs on root complexes of their own.

    Returns the tree and the GPUs' bus ids as NVML writes them. NICs: mlx5_0..7 compute, mlx5_8 and mlx5_9 storage.
    """
    tree = Sysfs(root)
    bus_ids = []
    for i in range(8):
        base = 0x10 + 0x10 * i
        switch = (f"pci0000:{base:02x}", f"0000:{base:02x}:01.0", f"0000:{base + 1:02x}:00.0")
        tree.pci(*switch, f"0000:{base + 2:02x}:00.0", f"0000:{base + 4:02x}:00.0")
        tree.nic(f"mlx5_{i}", [*switch, f"0000:{base + 2:02x}:01.0", f"0000:{base + 5:02x}:00.0"])
        bus_ids.append(f"00000000:{base + 4:02X}:00.0")
    for i, base in ((8, 0xA0), (9, 0xB0)):
        tree.nic(f"mlx5_{i}", [f"pci0000:{base:02x}", f"0000:{base:02x}:01.0", f"0000:{base + 1:02x}:00.0"])
    return tree, bus_ids


EFA_COUNTERS: Mapping[str, int] = dict.fromkeys(
    ("tx_bytes", "rx_bytes", "send_bytes", "recv_bytes", "rdma_read_bytes", "rdma_read_resp_bytes",
     "rdma_write_bytes", "rdma_write_recv_bytes", "rx_drops"), 0,
)  # fmt: skip


class Procfs:
    """A procfs tree under `root`: host counters and processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        put(root / "sys/kernel/random/boot_id", BOOT_ID)
        put(root / "sys/kernel/hostname", "gpu-node-17")
        self.process(1, comm="systemd", ppid=0, argv=["/sbin/init"], start=1)

    def cpu(self, *, user: int = 0, system: int = 0, idle: int = 0, iowait: int = 0, steal: int = 0) -> None:
        line = f"cpu  {user} 0 {system} {idle} {iowait} 0 0 {steal} 0 0"
        put(self.root / "stat", f"{line}\ncpu0 {line[5:]}\nintr 0\nctxt 1")

    def memory(self, total_kib: int, available_kib: int) -> None:
        put(
            self.root / "meminfo",
            f"MemTotal:       {total_kib} kB\nMemFree:  1 kB\nMemAvailable:   {available_kib} kB\nBuffers: 5 kB",
        )

    def disks(self, sectors: Mapping[str, tuple[int, int]]) -> None:
        lines = [f" 259 0 {name} 1 0 {read} 2 3 0 {written} 4 0 5 6" for name, (read, written) in sectors.items()]
        put(self.root / "diskstats", "\n".join(lines))

    def process(
        self, pid: int, *, comm: str | bytes = "python", ppid: int = 1, argv: Sequence[str | bytes] = (),
        start: int = 1000, uid: int = 1000, cgroup: str = "0::/user.slice/user-1000.slice/session-3.scope",
        environ: Mapping[str, str] | None = None, tty: int = 0,
    ) -> None:  # fmt: skip
        home = self.root / str(pid)
        name = comm if isinstance(comm, bytes) else comm.encode()
        rest = f" S {ppid} {pid} {pid} {tty} -1 4194304 1 0 0 0 5 5 0 0 20 0 1 0 {start} 1 1 18446744073709551615"
        put(home / "stat", str(pid).encode() + b" (" + name + b")" + rest.encode() + b"\n")
        words = [word if isinstance(word, bytes) else word.encode() for word in argv]
        put(home / "cmdline", b"".join(word + b"\0" for word in words))
        put(home / "status", f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t1\t1\t1\t1")
        put(home / "cgroup", cgroup)
        if environ is not None:
            put(home / "environ", b"".join(f"{k}={v}".encode() + b"\0" for k, v in environ.items()))
