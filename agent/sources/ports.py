"""The ports under ``/sys/class/infiniband``: what they say of themselves, and which counters tell their traffic.

Three families of byte counters are known:

* ``counters/port_xmit_data`` and ``port_rcv_data``: InfiniBand and RoCE (there RDMA only), in words of 4 bytes;
  ``counters/port_xmit_wait`` in ticks, 32 bits wide.
* ``hw_counters`` of EFA, in bytes. Whether ``tx_bytes`` holds RDMA too is not documented, so each direction is the
  greater of ``tx_bytes`` and of the sum by operation: both are parts of the truth, so it is never too much.
* anything else is unknown, and is said to be.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..base.safe_text import clean_text
from ..model import LinkLayer
from .counters import CounterRate
from .sysfs_file import SysfsFile

Direction = Literal["tx_bytes_per_second", "rx_bytes_per_second", "xmit_wait_per_second"]
METRICS: tuple[Direction, ...] = ("tx_bytes_per_second", "rx_bytes_per_second", "xmit_wait_per_second")

_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)b/sec", re.IGNORECASE)
_SCALE = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_WORD_BYTES = 4.0

# drivers/infiniband/hw/efa/efa_verbs.c (names). rdma_read_resp_bytes is the responder's side of a read, hence sent.
_EFA: Mapping[Direction, tuple[tuple[str, ...], ...]] = {
    "tx_bytes_per_second": (("tx_bytes",), ("send_bytes", "rdma_write_bytes", "rdma_read_resp_bytes")),
    "rx_bytes_per_second": (("rx_bytes",), ("recv_bytes", "rdma_read_bytes", "rdma_write_recv_bytes")),
}
_IB: Mapping[Direction, tuple[str, float]] = {
    "tx_bytes_per_second": ("port_xmit_data", _WORD_BYTES),
    "rx_bytes_per_second": ("port_rcv_data", _WORD_BYTES),
    "xmit_wait_per_second": ("port_xmit_wait", 1.0),
}


@dataclass(frozen=True, slots=True)
class CounterFamily:
    """Counters that together tell one metric: the sum of `files` times `factor`, as a `rate`."""

    files: tuple[SysfsFile, ...]
    factor: float
    rate: CounterRate


@dataclass(frozen=True, slots=True)
class PortFiles:
    """A port as found: its own words and, per metric, the families that can tell it (the greatest rate counts)."""

    key: str  # device/port
    device: str
    port: int
    link_layer: LinkLayer
    state: SysfsFile
    families: Mapping[Direction, tuple[CounterFamily, ...]]
    origins: Mapping[Direction, str]
    rate: SysfsFile

    @property
    def known_counters(self) -> bool:
        return bool(self.families.get("tx_bytes_per_second")) and bool(self.families.get("rx_bytes_per_second"))

    @property
    def files(self) -> tuple[SysfsFile, ...]:
        counters = (f for families in self.families.values() for family in families for f in family.files)
        return (self.state, self.rate, *counters)

    def forget(self) -> None:
        """Drop what the counters stood at."""
        for families in self.families.values():
            for family in families:
                family.rate.forget()

    def close(self) -> None:
        """Let go of every file. Idempotent."""
        for file in self.files:
            file.close()


def parse_rate(text: str) -> float | None:
    """``400 Gb/sec (4X NDR)`` as bytes per second one way; None if it says nothing."""
    match = _RATE.match(text)
    bits = float(match.group(1)) * _SCALE[match.group(2).upper()] if match else 0.0
    return bits / 8 or None


def parse_port_state(text: str | bytes) -> str:
    """``4: ACTIVE`` as ``ACTIVE``; empty if it says nothing."""
    word = clean_text(text, 32)
    return word.partition(":")[2].strip() if ":" in word else word


def find_ports(device_dir: Path, max_gap_seconds: float) -> list[PortFiles]:
    """The ports of one device, by number. A device that goes away meanwhile has none."""
    try:
        numbers = sorted(int(entry.name) for entry in (device_dir / "ports").iterdir() if entry.name.isdecimal())
    except OSError:
        return []
    return [_port(device_dir, number, max_gap_seconds, alone=len(numbers) == 1) for number in numbers]


def _port(device_dir: Path, number: int, max_gap_seconds: float, *, alone: bool) -> PortFiles:
    directory = device_dir / "ports" / str(number)
    layer_text = attribute_text(directory / "link_layer")
    layer: LinkLayer = "Ethernet" if layer_text == "Ethernet" else "InfiniBand"
    families: dict[Direction, tuple[CounterFamily, ...]] = {}
    origins: dict[Direction, str] = {}
    if _is_efa(device_dir, layer_text):
        layer = "EFA"
        # Kernels before 5.15 list the port's counters under the device.
        folder = next((d for d in _efa_folders(directory, device_dir, alone) if (d / "tx_bytes").exists()), None)
        if folder is not None:
            families, origins = _efa_families(folder, max_gap_seconds)
    else:
        for metric, (name, factor) in _IB.items():
            path = directory / "counters" / name
            if path.exists():
                families[metric] = (CounterFamily((SysfsFile(path),), factor, CounterRate(max_gap_seconds)),)
                origins[metric] = f"counters/{name}" + (" x 4" if factor == _WORD_BYTES else "")
    state, rate = SysfsFile(directory / "state"), SysfsFile(directory / "rate")
    key = f"{device_dir.name}/{number}"
    return PortFiles(key, device_dir.name, number, layer, state, families, origins, rate)


def _efa_folders(port_dir: Path, device_dir: Path, alone: bool) -> Sequence[Path]:
    return [port_dir / "hw_counters", *([device_dir / "hw_counters"] if alone else [])]


def _efa_families(
    folder: Path, max_gap_seconds: float
) -> tuple[dict[Direction, tuple[CounterFamily, ...]], dict[Direction, str]]:
    families: dict[Direction, tuple[CounterFamily, ...]] = {}
    origins: dict[Direction, str] = {}
    for metric, candidates in _EFA.items():
        found = [tuple(name for name in names if (folder / name).exists()) for names in candidates]
        families[metric] = tuple(
            CounterFamily(tuple(SysfsFile(folder / name) for name in names), 1.0, CounterRate(max_gap_seconds))
            for names in found
            if names
        )
        origins[metric] = "hw_counters: the greater of " + " and ".join(" + ".join(names) for names in found if names)
    return families, origins


def _is_efa(device_dir: Path, link_layer: str) -> bool:
    driver = Path(os.path.realpath(device_dir / "device/driver")).name
    return driver == "efa" or (link_layer == "Unspecified" and device_dir.name.startswith(("efa", "rdmap")))


def attribute_text(path: Path) -> str:
    """One short attribute, cleaned; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return clean_text(file.read(256))
    except OSError:
        return ""
