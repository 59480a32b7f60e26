"""NVML's error codes as the absences they become, and why the driver refuses profiling (GPM)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pynvml

from ..model import Capability
from .base import COMES_BACK, STAYS_MISSING, Fault, read_file

NO_DRIVER = "no-driver"  # reason: the node has no working driver
DRIVER_MISMATCH = "driver-mismatch"  # reason: only a new process can read the driver that is now loaded

# nvml.h, nvmlReturn_t.
UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, INSUFFICIENT_SIZE = 1, 2, 3, 4, 6, 7
DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 9, 10, 12, 13
GPU_IS_LOST, RESET_REQUIRED, LIB_RM_VERSION_MISMATCH = 15, 16, 18

GPU_GONE = frozenset({GPU_IS_LOST, RESET_REQUIRED})  # this GPU answers nothing more
DRIVER_GONE = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH})  # no GPU answers
# The same question will get the same answer. After any other code it is asked again.
LASTING = frozenset({0, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, FUNCTION_NOT_FOUND})

_REPORT = "Nothing to do, if the next ones are sound; else see nvidia-smi and report the driver's version."
_DRIVER = "Install or load the NVIDIA driver; nvidia-smi shows whether it works."
_DCGM = (
    "Run dcgm-exporter with its profiling fields switched on (DCGM_FI_PROF_SM_ACTIVE and the others) and read those."
)
_PERMIT = "Give the agent CAP_PERFMON (R565 and newer) or CAP_SYS_ADMIN, or set NVreg_RestrictProfilingToAdminUsers=0."
_LOST = "See the kernel log for its XID; it needs a reset or a reboot. The agent tries again."
_RESET = "Pause the agent (skuwise agent pause) and reset the GPU. The agent tries again."
_FAULTS = {
    UNINITIALIZED: Fault(NO_DRIVER, "The NVIDIA driver disconnected this agent.", "Restart the agent."),
    NOT_SUPPORTED: Fault("not-supported", "This GPU does not report it.", STAYS_MISSING),
    NO_PERMISSION: Fault("no-permission", "The driver does not let this user read it.", _PERMIT),
    DRIVER_NOT_LOADED: Fault(NO_DRIVER, "The NVIDIA driver is not loaded.", _DRIVER),
    LIBRARY_NOT_FOUND: Fault(NO_DRIVER, "There is no NVIDIA driver here (libnvidia-ml.so.1 is missing).", _DRIVER),
    FUNCTION_NOT_FOUND: Fault("not-supported", "This driver does not have the function.", "Use a newer driver."),
    GPU_IS_LOST: Fault("gpu-lost", "The GPU has fallen off the bus.", _LOST),
    RESET_REQUIRED: Fault("reset-required", "The GPU needs a reset before it can be used.", _RESET),
    LIB_RM_VERSION_MISMATCH: Fault(
        DRIVER_MISMATCH, "The driver was changed under the agent.", "Restart the agent, or reboot the node."
    ),
}

RELEASED = Fault("released", "The agent has released the GPUs.", "Run skuwise agent resume to sample them again.")
NOT_OPEN = Fault(NO_DRIVER, "The NVIDIA driver has not been opened yet.", "Wait for the agent to start.")
NO_GPM = Fault("no-gpm", "No GPM here (Hopper and R520 or newer have it): activity of its units is unknown.", _DCGM)
MIG = Fault(
    "mig", "Not reported in MIG mode: an instance has memory, processes and GPM, its GPU the rest.", STAYS_MISSING
)
MIG_SHARED = Fault("mig-shared", "Compute instances share this GPU instance's counters.", "Give each workload its own.")
NO_NVLINK = Fault("no-nvlink", "This GPU has no active NVLink.", "If it should have, see nvidia-smi nvlink -s.")
NO_COUNTER = Fault("not-supported", "This GPU's driver does not count this traffic.", _DCGM)
COUNTER_WRAP = Fault("counter-wrap", "The counter may have 32 bits, which PCIe fills between two readings.", _DCGM)
TOO_SOON = Fault("too-soon", "GPM needs 100 ms between two samples.", "Sample at an interval above 0.1 s.")
UNKNOWN_LAYOUT = Fault("unknown-layout", "The driver lists processes in an unknown layout.", _REPORT)
NOT_UPDATED = Fault("not-updated", "The driver has not refreshed its counter since the last reading.", COMES_BACK)


def fault_of(code: int) -> Fault:
    """The meaning of an NVML error code."""
    fault = _FAULTS.get(code)
    return fault or Fault("nvml-error", f"NVML answered with error {code} ({pynvml.NVMLError(code)}).", _REPORT)


def code_of(error: pynvml.NVMLError) -> int:
    """NVML's number of what pynvml raises."""
    return int(getattr(error, "value", pynvml.NVML_ERROR_UNKNOWN))


# linux/capability.h. Profiling needs CAP_SYS_ADMIN, or CAP_PERFMON from driver R565 on.
_PROFILING_CAPABILITIES = 1 << 21 | 1 << 38
_PROFILERS = ("gpm", "burst")  # the sources that read GPM
_FOR_ADMINS = "Profiling is for administrators (RmProfilingAdminOnly: 1 in /proc/driver/nvidia/params), and "
_ADMIT = (
    "Either options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, and reload the driver; every user "
    "of the node may then profile. Or, in a drop-in of skuwise-agent.service, AmbientCapabilities=CAP_PERFMON and "
    "CapabilityBoundingSet=CAP_PERFMON. Before R565 only CAP_SYS_ADMIN counts, and in a container it is the host's."
)


def explain(line: Capability, procfs: Path) -> Capability:
    """One of doctor's lines with the exact cause, where the driver refused GPM; any other as it is."""
    absence = line.absence
    if absence is None or line.source not in _PROFILERS or absence.reason != "no-permission":
        return line
    restricted = _number(procfs / "driver/nvidia/params", "RmProfilingAdminOnly")
    held = _number(procfs / "self/status", "CapEff")
    if restricted is None:  # this driver does not say
        return line
    remedy = _ADMIT
    if restricted == 0:
        detail = "The driver refuses profiling although RmProfilingAdminOnly is 0 in /proc/driver/nvidia/params."
        remedy = "See whether a virtual machine's host or a container keeps performance counters to itself."
    elif held is not None and held & _PROFILING_CAPABILITIES:
        detail = f"{_FOR_ADMINS}the driver does not take this process's capability for enough."
    else:
        detail = f"{_FOR_ADMINS}this process has neither CAP_PERFMON nor CAP_SYS_ADMIN."
    return replace(line, absence=replace(absence, detail=detail, remedy=remedy))


def _number(path: Path, name: str) -> int | None:
    """The hexadecimal number of `name` in a file of procfs; None where there is none."""
    text = (read_file(path) or b"").decode("utf-8", "replace")
    match = re.search(rf"^{name}:\s*([0-9a-fA-F]{{1,16}})\s*$", text, re.MULTILINE)
    return int(match[1], 16) if match else None
