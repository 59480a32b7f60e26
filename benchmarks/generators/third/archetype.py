"""What an archetype is: how a sort of workload is drawn, and what is true of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from .hardware import Part, Shape
from .work import Load

Life = Literal["whole", "long", "finite", "runs", "nightly", "queue", "replicas", "ended"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a workload runs. `gpus`: all of them; `part`: of the GPU; `zone`: hours from UTC of the people."""

    shape: Shape
    part: Part
    gpus: int
    nodes: int
    zone: float

    @property
    def port_share(self) -> float:
        """Bytes per second of the node's network for each of the workload's GPUs there, one way."""
        return self.shape.ports * self.shape.port_bits / 8 / max(self.gpus // self.nodes, 1)


# Seconds and the Unix time of the first -> what is done in them.
Course = Callable[[np.random.Generator, int, float], Load]
Draw = Callable[[np.random.Generator, Place], Course]
Shapes = tuple[str, ...]
Gpus = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Archetype:
    """`bottleneck` None: experts would differ. `shapes`: "mig" and "shared" stand for such nodes. `weights`: of memory,
    the share that an engine's weights take (None: nothing is preallocated). `sure`: findings that are or are not
    deserved whatever the figures say (None: not scored). `run_hours`: least and most of one run, `gap_hours`: between.
    `pods`: replicas, each of them with so many GPUs. `independent`: its GPUs work each
    at its own. `role`: what names, owners and images it is given."""

    name: str
    kind: str | None
    bottleneck: str | None
    shapes: Shapes
    gpus: Gpus
    life: Life
    draw: Draw
    role: str
    count: int = 1
    nodes: int = 1
    preallocates: bool = False
    engine: str | None = None
    sure: Mapping[str, bool | None] = field(default_factory=dict)
    run_hours: tuple[float, float] = (1.0, 6.0)
    gap_hours: tuple[float, float] = (2.0, 20.0)
    pods: int = 1
    independent: bool = False
