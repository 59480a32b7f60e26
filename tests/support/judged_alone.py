"""The verdict on one workload that does one thing all along, alone on its node."""

from collections.abc import Mapping
from typing import Any

from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.verdict_types import WorkloadVerdict

from .frame_builder import FrameBuilder
from .rulebooks import rulebook


def alone(
    values: Mapping[str, float], *, hours: int = 36, gpus: int = 2, name: str = "NVIDIA H100 80GB HBM3",
    work: Mapping[str, Any] | None = None, port: float | None = None, **extra: Any,
) -> WorkloadVerdict:  # fmt: skip
    """On `gpus` GPUs that the driver calls `name`. `work`: what is told of it; `port`: use of a fabric port; `extra`:
    as of `FrameBuilder.use`."""
    b = FrameBuilder(hours=hours)
    uuids = b.node(gpus=gpus, sku=None, name_of_gpu=name)
    for uuid in uuids:
        b.use(values, uuid=uuid, **extra)
    if port is not None:
        b.port(port)
    b.work("w", [("n1", uuid) for uuid in uuids], **(work or {}))
    return judge(b.frame(), rulebook()).workloads[0]
