"""GPUs and nodes: figures of the vendors' tables and of measurements of contexts at rest."""

from dataclasses import dataclass, field

GB = 1e9
GIB = 1024.0**3


@dataclass(frozen=True, slots=True)
class Part:
    """A GPU. Bandwidths are bytes per second one way; `context_watts`: least and most of a context without work.

    `reference_mhz`: the clock behind the tensor peak; `eta_compute`, `eta_hbm`: the sustained shares of the peaks.
    `tensor_counter`: what the counter of tensor activity reads at that peak (A10G: 0.33 to 0.41 measured at 47 to 55 of
    70 TFLOPS).
    """

    model: str
    gib: float
    hbm: float
    tdp: float
    idle_watts: float
    context_watts: tuple[float, float]
    boost_mhz: float
    reference_mhz: float
    memory_mhz: float
    nvlink: float
    pcie: float
    eta_compute: float = 0.8
    eta_hbm: float = 0.85
    instances: int = 0
    tensor_counter: float = 1.0


PARTS = {
    "H100": Part(
        "NVIDIA H100 80GB HBM3", 79.6, 3350, 700, 68, (72, 122), 1980, 1830, 2619, 450 * GB, 64 * GB, 0.82, 0.88, 7
    ),
    "H200": Part("NVIDIA H200", 140.4, 4800, 700, 74, (78, 125), 1980, 1830, 3201, 450 * GB, 64 * GB, 0.82, 0.85, 7),
    "B200": Part("NVIDIA B200", 179.0, 7700, 1000, 140, (150, 210), 1965, 1856, 3996, 900 * GB, 64 * GB, 0.73, 0.83, 7),
    "A100": Part(
        "NVIDIA A100-SXM4-80GB", 80.0, 2039, 400, 50, (54, 80), 1410, 1410, 1593, 300 * GB, 32 * GB, 0.8, 0.77, 7
    ),
    "A100-40": Part(
        "NVIDIA A100-SXM4-40GB", 40.0, 1555, 400, 46, (53, 76), 1410, 1410, 1215, 300 * GB, 32 * GB, 0.8, 0.77, 7
    ),
    "L40S": Part("NVIDIA L40S", 45.0, 864, 350, 33, (36, 102), 2520, 2490, 9001, 0, 32 * GB, 0.73, 0.84),
    "L4": Part("NVIDIA L4", 22.5, 300, 72, 12, (16, 32), 2040, 2040, 6251, 0, 32 * GB, 0.6, 0.78),
    "A10G": Part("NVIDIA A10G", 22.5, 600, 300, 18, (50, 66), 1710, 1710, 6251, 0, 32 * GB, 0.8, 0.8, 0, 0.5),
    "T4": Part("Tesla T4", 15.0, 320, 70, 9, (25, 34), 1590, 1590, 5001, 0, 16 * GB, 0.5, 0.77),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A type of node. `fabric`: "ib" or "ethernet"; `ports`: of the fabric, with bits per second of one."""

    part: str
    gpus: int
    fabric: str
    ports: int
    port_bits: float
    cores: int
    host_gib: float
    instance_type: str | None = None
    region: str | None = None
    vendor: str | None = None


SHAPES = {
    "h100-ib": Shape("H100", 8, "ib", 8, 400e9, 112, 2048),
    "h100-azure": Shape(
        "H100", 8, "ib", 8, 400e9, 96, 1900, "Standard_ND96isr_H100_v5", "eastus", "Microsoft Corporation"
    ),
    "h100-aws": Shape("H100", 8, "ethernet", 1, 100e9, 192, 2048, "p5.48xlarge", "us-east-1", "Amazon EC2"),
    "h200-ib": Shape("H200", 8, "ib", 8, 400e9, 128, 2048),
    "b200-ib": Shape("B200", 8, "ib", 8, 400e9, 128, 2048),
    "a100-ib": Shape("A100", 8, "ib", 4, 200e9, 96, 1024),
    "a100-eth": Shape("A100", 8, "ethernet", 1, 100e9, 96, 1024),
    "a100-40-eth": Shape("A100-40", 4, "ethernet", 1, 25e9, 64, 512),
    "l40s-8": Shape("L40S", 8, "ethernet", 1, 100e9, 192, 1536, "g6e.48xlarge", "us-east-1", "Amazon EC2"),
    "l40s-4": Shape("L40S", 4, "ethernet", 1, 50e9, 64, 512),
    "a10g-4": Shape("A10G", 4, "ethernet", 1, 25e9, 96, 384, "g5.24xlarge", "us-east-1", "Amazon EC2"),
    "a10g-1": Shape("A10G", 1, "ethernet", 1, 10e9, 8, 32, "g5.2xlarge", "us-east-1", "Amazon EC2"),
    "l4-2": Shape("L4", 2, "ethernet", 1, 25e9, 48, 192),
    "l4-1": Shape("L4", 1, "ethernet", 1, 16e9, 16, 64, "g2-standard-16", "us-central1", "Google"),
    "t4-1": Shape("T4", 1, "ethernet", 1, 10e9, 8, 32, "g4dn.2xlarge", "us-east-1", "Amazon EC2"),
    "mig": Shape("A100", 4, "ethernet", 1, 100e9, 64, 512),
    "shared": Shape("L4", 2, "ethernet", 1, 25e9, 48, 192),
    "t4-4": Shape("T4", 4, "ethernet", 1, 25e9, 48, 192),
}


@dataclass(frozen=True, slots=True)
class Profile:
    """A MIG instance's profile: its share of SMs and of memory."""

    name: str
    compute: int
    memory: int


LAYOUTS = (
    (Profile("3g.40gb", 3, 4), Profile("2g.20gb", 2, 2), Profile("1g.10gb", 1, 1), Profile("1g.10gb", 1, 1)),
    (Profile("2g.20gb", 2, 2), Profile("2g.20gb", 2, 2), Profile("2g.20gb", 2, 2), Profile("1g.10gb", 1, 1)),
    (Profile("3g.40gb", 3, 4), Profile("3g.40gb", 3, 4)),
)


@dataclass(slots=True)
class Slot:
    """What a workload can hold: a GPU of a node, or an instance on one. `busy`: spans that are taken, seconds."""

    index: int
    uuid: str
    instance: int | None = None
    profile: Profile | None = None
    busy: list[tuple[float, float]] = field(default_factory=list)

    @property
    def key(self) -> str:
        return self.uuid if self.instance is None else f"{self.uuid}/gi{self.instance}"


@dataclass(slots=True)
class Machine:
    """One node. `scheduler`: kubernetes, slurm or none; `exported`: optional fields that its exporter has on."""

    name: str
    shape: Shape
    slots: list[Slot]
    scheduler: str
    address: str
    is_mig: bool = False
    has_sm: bool = False
    has_nvlink: bool = False
    context_share: float = 0.5

    @property
    def part(self) -> Part:
        return PARTS[self.shape.part]
