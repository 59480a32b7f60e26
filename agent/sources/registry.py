"""The sources of metrics that the agent has, the best first: where two tell the same of a device, the earlier counts.

The GPU driver comes before all of them (`nvidia_driver.py`).
"""

from __future__ import annotations

from .base import SourceSpec
from .dcgm import DCGM
from .ethernet import ETHERNET
from .host import HOST
from .infiniband import INFINIBAND
from .serving import SERVING

SOURCES: tuple[SourceSpec, ...] = (INFINIBAND, ETHERNET, HOST, DCGM, SERVING)
