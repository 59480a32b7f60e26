"""The driver's thread and its deadlines, with sources that hang when they are told to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from skuwise.agent.base.clock import SystemClock
from skuwise.agent.model import Absence
from skuwise.agent.service.driver.gpu_drivers import GpuDrivers
from skuwise.agent.service.driver.guard import Deadlines, GuardedDriver
from skuwise.agent.service.runtime.control import ControlServer
from skuwise.agent.service.runtime.notify import Notifier
from skuwise.agent.service.runtime.run_database import DatabaseLock
from skuwise.agent.service.runtime.supervisor import Supervisor
from skuwise.agent.sources.gpu_backend import GpuBackend
from skuwise.tests.support.hanging_driver import Gpus, Session, at, reasons

SHORT = Deadlines(read=0.5, open=0.5, close=0.5, retry=60.0)


def driver(session: Session, sysfs: Path = Path("/nonexistent")) -> tuple[GuardedDriver, Gpus]:
    return GuardedDriver(_backend("nvml"), session, 1.0, 10.0, sysfs=sysfs, deadlines=SHORT), session.gpus


def _backend(name: str) -> GpuBackend:
    return GpuBackend(name, name.upper(), "no library", (name,), lambda _: Session(), "module/nvidia/version")


def finish(guarded: GuardedDriver) -> None:
    """Wait until the outstanding job is done."""
    call = guarded._call
    assert call is not None and call.wait(60)


def test_a_hang_is_one_outstanding_call_and_the_late_answer_is_dropped() -> None:
    session = Session()
    guarded, source = driver(session)
    guarded.open(at(0))
    assert guarded.read(at(1)).gpus
    session.answers.clear()
    hung = {("nvml", "driver-hung"), ("GPU-1", "driver-hung")}
    assert reasons(guarded.read(at(2))) == hung
    first = guarded.read(at(3))
    assert reasons(first) == hung and guarded.read(at(4)).absences is first.absences
    assert source.reads == 2  # nobody asked again
    assert guarded.hung_seconds(62.0) > 59
    assert [gpu.uuid for gpu in guarded.probe().gpus] == ["GPU-1"]  # it is still there, only not read
    session.answers.set()
    finish(guarded)
    assert reasons(guarded.read(at(5))) == hung  # its rates would count from a reading of unknown time
    assert guarded.read(at(6)).gpus == {"GPU-1": {"power_watts": 300.0}}
    assert guarded.hung_seconds(70.0) == 0.0
    guarded.close()


def test_a_pause_waits_for_a_hung_driver_and_ends_by_itself() -> None:
    session = Session()
    guarded, _ = driver(session)
    guarded.open(at(0))
    session.answers.clear()
    guarded.read(at(1))
    assert guarded.pause(at(2), 100.0) is False
    assert reasons(guarded.read(at(3))) == {("nvml", "paused"), ("GPU-1", "paused")}
    session.answers.set()
    finish(guarded)
    guarded.read(at(4))
    finish(guarded)
    assert session.fault is not None and session.fault.reason == "released"
    assert reasons(guarded.read(at(101)))
    guarded.read(at(102.5))
    finish(guarded)
    assert guarded.paused_until is None and guarded.read(at(103)).gpus


@dataclass
class Store:
    """A database as an attendant sees it."""

    fault: Absence | None = None
    waiting_ticks: int = 0


class Told:
    """What an attendant said and noted."""

    def __init__(self, folder: Path, guarded: GuardedDriver, server: ControlServer | None = None) -> None:
        self.said: list[str] = []
        self.noted: list[Absence] = []
        self.instance = DatabaseLock.take(folder / "node.db", wait_seconds=0.0)
        self.attendant = Supervisor(
            SystemClock(),
            Notifier({"NOTIFY_SOCKET": str(folder / "nobody")}),
            GpuDrivers([guarded]),
            self.instance,
            store=Store(),
            server=server,
            note=lambda absence, _: self.noted.append(absence),
            say=self.said.append,
            database=folder / "node.db",
        )


def test_a_driver_hung_for_a_minute_ends_the_agent_once_an_hour(tmp_path: Path) -> None:
    session = Session()
    guarded, _ = driver(session)
    guarded.open(at(0))
    session.answers.clear()
    guarded.read(at(-1000.0))  # on the system's own clock, a good while ago
    told = Told(tmp_path, guarded)
    told.attendant.attend()
    assert told.attendant.restart_reason is not None
    assert [one.reason for one in told.noted] == ["self-restart"]
    told.instance.release()
    again = Told(tmp_path, guarded)
    again.attendant.attend()
    again.attendant.attend()
    assert again.attendant.restart_reason is None
    assert sum("within the last hour" in line for line in again.said) == 1
    again.instance.release()
    session.answers.set()
