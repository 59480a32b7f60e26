"""The agent's sources of metrics, the best first: of two that tell the same of a device, the earlier counts."""

from __future__ import annotations

from .base import SourceSpec
from .dcgm import DCGM
from .ethernet import ETHERNET
from .host import HOST
from .infiniband import INFINIBAND
from .serving import SERVING

SOURCES: tuple[SourceSpec, ...] = (INFINIBAND, ETHERNET, HOST, DCGM, SERVING)
