"""The waste rules: one class a file, and the list of them, in the order of their findings in the output."""

from ..rule import Rule
from .energy import Energy
from .fix_first import FixFirst
from .held_idle import HeldIdle
from .idle import Idle
from .idle_fabric import IdleFabric
from .idle_nvlink import IdleNvlink
from .memory_unused import MemoryUnused
from .over_tier import OverTier
from .telemetry_fault import TelemetryFault
from .too_many_gpus import TooManyGpus
from .under_tier import UnderTier

RULES: tuple[Rule, ...] = (
    IdleFabric(), Idle(), HeldIdle(), TooManyGpus(), FixFirst(), UnderTier(), OverTier(), IdleNvlink(), MemoryUnused(),
    Energy(), TelemetryFault(),
)  # fmt: skip
