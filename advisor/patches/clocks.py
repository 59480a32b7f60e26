"""Which clock and which power limit a recommendation asks for, in the units of nvidia-smi."""

from __future__ import annotations

from ...rules.base.errors import UsageError
from .subject import Subject

# The supported SM clocks of NVIDIA's data center GPUs are 15 MHz apart (nvidia-smi -q -d SUPPORTED_CLOCKS).
STEP_MEGAHERTZ = 15
# As --mhz and --watts: a figure of the ledger beyond them is that of no GPU.
_MEGAHERTZ_MAX, _WATTS_MAX = 1_000_000, 100_000.0
_REMEDY = "Run 'skuwise ledger show ID' for the recommended change, and set it here."


def clock_megahertz(subject: Subject) -> int:
    """The SM clock, rounded down to a step. Raises UsageError where the clock of today was not measured."""
    if subject.asked.megahertz is not None:
        return subject.asked.megahertz
    share, before, gpu = subject.told.clock_share, subject.ground.before, subject.gpu
    ratio = before.clock_ratio if before is not None else None
    if share is None or ratio is None or gpu is None:
        raise UsageError("The ledger does not know the SM clock of this recommendation: set --mhz.", _REMEDY)
    steps = share * ratio * gpu.tensor_reference_hertz / 1e6 // STEP_MEGAHERTZ
    if not 0 < steps * STEP_MEGAHERTZ < _MEGAHERTZ_MAX:
        raise UsageError("The SM clock of this recommendation in the ledger is none: set --mhz.", _REMEDY)
    return int(steps) * STEP_MEGAHERTZ


def cap_watts(subject: Subject) -> float:
    """The power limit of one GPU. Raises UsageError where the ledger does not know it."""
    found = subject.asked.watts or subject.told.cap_watts
    if found is None:
        raise UsageError("The ledger does not know the power limit of this recommendation: set --watts.", _REMEDY)
    if not 0 < found < _WATTS_MAX:
        raise UsageError("The power limit of this recommendation in the ledger is none: set --watts.", _REMEDY)
    return found
