"""How to add a source or a GPU vendor, carried out: the new files and one registration, and the agent reads them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from skuwise.tests.nvmlstub import stub_env
from skuwise.tests.support.recipe_tree import AGENT, RecipeTree

SOURCE = '''
"""A port whose counter is one file: an example of a source."""

from __future__ import annotations

from ..model import FabricPort, Capability, Instant, Probe, Reading
from .base import SourceContext, SourceSpec


class ToySource:
    name = "toy"

    def __init__(self, path):
        self.path = path

    def probe(self) -> Probe:
        line = Capability(self.name, "fabric", "toy0/1", "tx_bytes_per_second", str(self.path))
        return Probe(ports=(FabricPort("toy0", 1, "storage"),), capabilities=(line,))

    def read(self, instant: Instant) -> Reading:
        return Reading(fabric={"toy0/1": {"tx_bytes_per_second": float(self.path.read_text())}})

    def close(self) -> None: ...


def build(context: SourceContext) -> ToySource:
    folder = context.config.sysfs / "class/toy"
    if not folder.exists():
        raise OSError("no toy here")
    return ToySource(folder / "tx")


TOY = SourceSpec("toy", ["tx_bytes_per_second"], "a toy under /sys/class/toy", "Plug one in.", build)
'''
REGISTRY = "agent/sources/registry.py"
REGISTERED = {
    "from .scrape.serving import SERVING\n": "from .scrape.serving import SERVING\nfrom .toy import TOY\n",
    "DCGM, SERVING)": "DCGM, SERVING, TOY)",
}

BACKEND = '''
"""GPUs of a vendor that there is not: an example of a backend."""

from __future__ import annotations

import time
from pathlib import Path

from ...model import Capability, Gpu, Probe, Reading
from ..base import Fault
from ..gpu_backend import NO_DRIVER, GpuBackend

GPU = Gpu("TOY-0", 0, "Toy 100", mem_total_bytes=8 << 30)


class ToySource:
    name = "toygpu"

    def __init__(self, driver):
        self.driver = driver

    def probe(self):
        line = Capability(self.name, "gpu", GPU.uuid, "sm_active", "toys")
        return Probe(gpus=(GPU,), capabilities=(line,)) if self.driver.fault is None else Probe()

    def read(self, instant):
        if (self.driver.folder / "hang").exists():
            time.sleep(600)
        return Reading(gpus={GPU.uuid: {"sm_active": 0.25, "power_watts": 40.0}})

    def close(self):
        self.driver.fault = Fault("released", "It was let go of.", "")


class ToyReader:
    def __init__(self, driver):
        self.driver = driver

    def each(self, now):
        if self.driver.fault is None:
            yield GPU.uuid, now(), {"sm_active": 0.25, "tensor_active": 0.5}
        return frozenset()


class ToyDriver:
    version = "1"

    def __init__(self, config):
        self.folder = config.sysfs / "toygpu"
        self.fault = Fault(NO_DRIVER, "It is not open.", "")
        self.sources = (ToySource(self),)
        self.beside = ()

    def open(self, instant):
        self.fault = None if self.folder.exists() else Fault(NO_DRIVER, "There is no toy driver.", "Get one.")

    def burst_reader(self, max_gap_seconds, metrics):
        return ToyReader(self) if (self.folder / "bursts").exists() else None

    def unread_gpus(self):
        return ()


TOY = GpuBackend("toygpu", "Toy", "libtoy.so", ("toygpu",), ToyDriver, burst_source="toygpu")
'''
BACKENDS = "agent/sources/gpu_backends.py"
BACKEND_REGISTERED = {
    "from .nvidia.backend import NVIDIA\n": "from .nvidia.backend import NVIDIA\nfrom .toygpu.backend import TOY\n",
    "= (NVIDIA,)": "= (NVIDIA, TOY)",
}


def rows(db: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as connection:
        return connection.execute(sql).fetchall()


def sample(house: RecipeTree, folder: Path, *words: str) -> Path:
    """The database of an agent that ran for a few ticks."""
    db = folder / "node.db"
    flags = ["--db", str(db), "--interval", "0.2s", "--duration", "1s", "--path.sysfs", str(folder / "sys"), *words]
    done = house.run("agent", "run", *flags)
    assert done.returncode == 0, done.stderr
    return db


def look(house: RecipeTree, folder: Path, command: str) -> Any:
    done = house.run("agent", command, "--format", "json", "--path.sysfs", str(folder / "sys"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def house(tmp_path: Path) -> RecipeTree:
    (tmp_path / "sys").mkdir()
    return RecipeTree.of(tmp_path / "house", AGENT)


def test_a_source_is_its_module_and_its_registration(house: RecipeTree, tmp_path: Path) -> None:
    house.add("agent/sources/toy.py", SOURCE)
    house.change(REGISTRY, REGISTERED)
    (tmp_path / "sys/class/toy").mkdir(parents=True)
    (tmp_path / "sys/class/toy/tx").write_text("4096\n")
    (port,) = look(house, tmp_path, "once")["fabric"]
    assert (port["device"], port["role"], port["tx_bytes_per_second"]) == ("toy0", "storage", 4096.0)
    (line,) = (line for line in look(house, tmp_path, "doctor") if line["source"] == "toy")
    assert (line["status"], line["subject"]) == ("read", "toy0/1") and line["source_cpu_seconds"] is not None
    db = sample(house, tmp_path)
    assert set(rows(db, "SELECT device, tx_bytes_per_second FROM fabric_samples")) == {("toy0", 4096.0)}


def test_a_source_that_fails_costs_itself_alone_and_one_that_is_gone_leaves_nothing(
    house: RecipeTree, tmp_path: Path
) -> None:
    house.add("agent/sources/toy.py", SOURCE)
    house.change(REGISTRY, REGISTERED)
    (line,) = (line for line in look(house, tmp_path, "doctor") if line["source"] == "toy")
    assert (line["status"], line["reason"]) == ("absent", "source-failed")
    assert "a toy under /sys/class/toy" in line["detail"] and line["remedy"] == "Plug one in."
    db = sample(house, tmp_path)
    assert rows(db, "SELECT count(*) > 2, count(cpu_util) > 2 FROM host_samples") == [(1, 1)]
    assert ("toy", "source-failed") in rows(db, "SELECT device, reason FROM absences")
    house.remove("agent/sources/toy.py")
    house.change(REGISTRY, {after: before for before, after in REGISTERED.items()})
    assert not [line for line in look(house, tmp_path, "doctor") if line["source"] == "toy"]


def test_a_vendor_is_its_folder_and_its_registration(house: RecipeTree, tmp_path: Path) -> None:
    house.add("agent/sources/toygpu/__init__.py", '"""Toys."""\n')
    house.add("agent/sources/toygpu/backend.py", BACKEND)
    house.change(BACKENDS, BACKEND_REGISTERED)
    (tmp_path / "sys/toygpu").mkdir()
    lines = look(house, tmp_path, "doctor")
    (line,) = (line for line in lines if line["scope"] == "gpu" and line["metric"] == "sm_active")
    assert (line["source"], line["status"], line["subject"]) == ("toygpu", "read", "TOY-0")
    assert not [line for line in lines if line["source"] == "nvml"]  # its driver is not here, another's is
    assert look(house, tmp_path, "once")["gpus"][0]["sm_active"] == 0.25
    db = sample(house, tmp_path)
    sampled = rows(db, "SELECT gpu_uuid, sm_active, power_watts FROM gpu_samples")
    assert len(sampled) > 2 and set(sampled) == {("TOY-0", 0.25, 40.0)}
    assert rows(db, "SELECT gpu_uuid, name, kind FROM gpus") == [("TOY-0", "Toy 100", "gpu")]


def test_two_vendors_stand_side_by_side_and_bursts_are_the_vendors_choice(tmp_path: Path) -> None:
    (tmp_path / "sys/toygpu").mkdir(parents=True)
    (tmp_path / "sys/toygpu/bursts").touch()
    stub = stub_env(tmp_path, "[gpu 0]\nname = NVIDIA H100 80GB HBM3\nsm_active = 0.5\n")
    house = RecipeTree.of(tmp_path / "house", AGENT, stub)
    house.add("agent/sources/toygpu/__init__.py", '"""Toys."""\n')
    house.add("agent/sources/toygpu/backend.py", BACKEND)
    house.change(BACKENDS, BACKEND_REGISTERED)
    lines = [line for line in look(house, tmp_path, "doctor") if line["metric"] == "burst"]
    bursts = {(line["subject"][:3], line["origin"].split()[0]) for line in lines}
    assert bursts == {("GPU", "GPM"), ("TOY", "TOYGPU")}
    db = sample(house, tmp_path)
    sampled = rows(db, "SELECT substr(gpu_uuid, 1, 3), round(avg(sm_active), 2) FROM gpu_samples GROUP BY 1 ORDER BY 1")
    assert sampled == [("GPU", 0.5), ("TOY", 0.25)]


def test_a_vendors_hung_driver_is_its_own_and_without_any_vendor_the_rest_is_read(
    house: RecipeTree, tmp_path: Path
) -> None:
    house.add("agent/sources/toygpu/__init__.py", '"""Toys."""\n')
    house.add("agent/sources/toygpu/backend.py", BACKEND)
    house.change(BACKENDS, BACKEND_REGISTERED)
    (tmp_path / "sys/toygpu").mkdir()
    (tmp_path / "sys/toygpu/hang").touch()
    db = sample(house, tmp_path, "--duration", "3s")
    assert ("TOY-0", "driver-hung") in rows(db, "SELECT gpu_uuid, reason FROM absences")
    assert "Toy driver" in rows(db, "SELECT detail FROM absences WHERE reason = 'driver-hung'")[0][0]
    db.unlink()
    house.change(BACKENDS, {"= (NVIDIA, TOY)": "= ()"})
    assert rows(sample(house, tmp_path), "SELECT count(*) > 2 FROM host_samples") == [(1,)]
    assert look(house, tmp_path, "once")["gpus"] == []
