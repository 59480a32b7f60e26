"""What NVML's error codes mean to a person."""

from __future__ import annotations

import math

import pynvml

from .base import COMES_BACK, STAYS_MISSING, Fault

NO_DRIVER = "no-driver"  # the reason of a fault where the driver is not on the node at all
DRIVER_MISMATCH = "driver-mismatch"  # that of one that only a new process mends: the driver was changed under this one

# nvml.h, nvmlReturn_t.
INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 2, 3, 4, 12, 13
NOT_FOUND, TIMEOUT = 6, 10
GPU_IS_LOST, RESET_REQUIRED = 15, 16
UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH = 1, 9, 18

GPU_GONE = frozenset({GPU_IS_LOST, RESET_REQUIRED})  # this GPU answers nothing more
DRIVER_GONE = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH})  # no GPU does


_REPORT = "Nothing to do, if the next ones are sound; else report the driver's version."
_SEE_LOGS = "See nvidia-smi and the kernel's log; report it where they show nothing."
_DRIVER_REMEDY = "Install or load the NVIDIA driver; nvidia-smi shows whether it works."
_DCGM_REMEDY = (
    "Run dcgm-exporter with its profiling fields switched on (DCGM_FI_PROF_SM_ACTIVE and the others) and read those."
)
_FAULTS = {
    UNINITIALIZED: Fault(NO_DRIVER, "The NVIDIA driver disconnected this agent.", "Restart the agent."),
    NOT_SUPPORTED: Fault("not-supported", "This GPU does not report it.", STAYS_MISSING),
    NO_PERMISSION: Fault(
        "no-permission",
        "The driver does not let this user read it.",
        "Give the agent CAP_PERFMON (driver R565 and newer) or CAP_SYS_ADMIN,"
        " or load the driver with NVreg_RestrictProfilingToAdminUsers=0.",
    ),
    DRIVER_NOT_LOADED: Fault(NO_DRIVER, "The NVIDIA driver is not loaded.", _DRIVER_REMEDY),
    LIBRARY_NOT_FOUND: Fault(
        NO_DRIVER, "There is no NVIDIA driver here (libnvidia-ml.so.1 is missing).", _DRIVER_REMEDY
    ),
    FUNCTION_NOT_FOUND: Fault("not-supported", "This driver does not have the function.", "Use a newer driver."),
    GPU_IS_LOST: Fault(
        "gpu-lost",
        "The GPU has fallen off the bus.",
        "See the kernel log for its XID; it needs a reset or a reboot. The agent tries again.",
    ),
    RESET_REQUIRED: Fault(
        "reset-required",
        "The GPU needs a reset before it can be used.",
        "Pause the agent (skuwise agent pause) and reset the GPU. The agent tries again.",
    ),
    LIB_RM_VERSION_MISMATCH: Fault(
        DRIVER_MISMATCH,
        "The driver was changed under the running agent: its library and its kernel module differ in version.",
        "Restart the agent; if that does not help, reboot the node.",
    ),
}

RELEASED = Fault("released", "The agent has released the GPUs.", "Run skuwise agent resume to sample them again.")
NOT_OPEN = Fault(NO_DRIVER, "The NVIDIA driver has not been opened yet.", "Wait for the agent to start.")
NO_GPM = Fault(
    "no-gpm",
    "This GPU does not report activity of its units (GPM requires Hopper or newer); utilization is no substitute.",
    _DCGM_REMEDY,
)
NO_GPM_DRIVER = Fault(
    "no-gpm",
    "This driver has no GPM, so the activity of the GPU's units is unknown.",
    f"Upgrade the driver. Or: {_DCGM_REMEDY}",
)
MIG_WHOLE = Fault("mig", "The driver reports this for the whole GPU only; see the instance's parent.", STAYS_MISSING)
MIG_UTILISATION = Fault(
    "mig", "The driver does not report utilization of a GPU in MIG mode; its instances have GPM.", STAYS_MISSING
)
MIG_SHARED = Fault(
    "mig-shared",
    "Several compute instances share this GPU instance, and its counters are of all of them together.",
    "Give each workload its own GPU instance to measure its use.",
)
NO_NVLINK = Fault(
    "no-nvlink", "This GPU has no active NVLink.", "Nothing to do, unless it should have: see nvidia-smi nvlink -s."
)
NO_COUNTER = Fault("not-supported", "This GPU's driver does not count this traffic.", _DCGM_REMEDY)
NOT_A_NUMBER = Fault("not-a-number", "The driver returned a value that is not a number.", _REPORT)
OUT_OF_RANGE = Fault("out-of-range", "The driver returned an impossible value.", _REPORT)
TOO_SOON = Fault("too-soon", "GPM needs 100 ms between two samples.", "Sample at an interval above 0.1 s.")
NOT_UPDATED = Fault("not-updated", "The driver has not refreshed its counter since the last reading.", COMES_BACK)


def counter_wrap(wrap_seconds: float) -> Fault:
    """A counter of perhaps 32 bits, read at intervals that are no shorter than `wrap_seconds`, its fastest turn."""
    detail = (
        "The counter may have 32 bits, and this link can move more than 4 GiB between two readings: "
        "a wrap cannot be excluded."
    )
    shorter = math.ceil(10 * wrap_seconds) - 1  # tenths of a second; the agent's shortest interval is one
    remedy = f"{_DCGM_REMEDY} Or sample every {shorter / 10:g} s." if shorter >= 1 else _DCGM_REMEDY
    return Fault("counter-wrap", detail, remedy)


def fault_of(code: int, text: str = "") -> Fault:
    """The meaning of an NVML error code; `text` is NVML's own word for one that has no entry here."""
    known = _FAULTS.get(code)
    return known or Fault("nvml-error", f"NVML answered with error {code}{f' ({text})' if text else ''}.", _SEE_LOGS)


def code_of(error: pynvml.NVMLError) -> int:
    """NVML's number of what pynvml raises."""
    return int(getattr(error, "value", pynvml.NVML_ERROR_UNKNOWN))


def text_of(answer: str | bytes) -> str:
    """What the driver says of a GPU; pynvml gives some of it as bytes."""
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer
