"""The list of waste rules, in the order of their findings in the output."""

from ..rule import Rule
from .faults import FixFirst, TelemetryFault
from .idle import HeldIdle, Idle
from .idle_links import IdleFabric, IdleNvlink
from .oversized import Energy, MemoryUnused, TooManyGpus
from .tier import OverTier, UnderTier

RULES: tuple[Rule, ...] = (
    IdleFabric(), Idle(), HeldIdle(), TooManyGpus(), FixFirst(), UnderTier(), OverTier(), IdleNvlink(), MemoryUnused(),
    Energy(), TelemetryFault(),
)  # fmt: skip
