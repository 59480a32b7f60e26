"""Cards of the jobs of hand-built frames."""

from dataclasses import replace

from skuwise.advisor.cards.build import card_of, judged_at
from skuwise.advisor.core.card_types import Asked, Card, CardPrice, Compared, Course, Judged, Use
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.verdict_types import Owner
from skuwise.tests.support.frame_builder import FREE, START, TRAINING, FrameBuilder
from skuwise.tests.support.rulebooks import rulebook

HOUR, MINUTE = 3600.0, 60.0
HOSTILE = '=cmd|"/C calc"\x1b[2J<script>alert(1)</script>|`x`\n- *y*: {{z}}\u202e'


def busy_then_idle(busy_hours: int, idle_hours: int, *, used: int = 8) -> FrameBuilder:
    """A Slurm job that trains on `used` of its eight GPUs, then holds all of them without a kernel."""
    built = FrameBuilder(hours=busy_hours + idle_hours)
    uuids = built.node("n1", gpus=8)
    resting = {**FREE, "mem_used_bytes": TRAINING["mem_used_bytes"], "power_watts": 110.0}
    for number, uuid in enumerate(uuids):
        built.use(TRAINING if number < used else FREE, uuid=uuid, end=busy_hours, interval=MINUTE)
        if idle_hours:
            built.use(resting, uuid=uuid, start=busy_hours, interval=MINUTE)
    built.work(
        "w-1f2e3d4c5b6a7988", [("n1", uuid) for uuid in uuids], name="train-7b", scheduler="slurm", job_id="4711",
        user="ann", account="ml", basis="allocation",
    )  # fmt: skip
    return built


def only_card(builder: FrameBuilder) -> Card:
    """The card of its one workload, judged at the window's end."""
    frame = builder.frame()
    reasoned = judged_at(frame.window.end, frame, rulebook())
    return card_of(frame, reasoned, reasoned.advice.workloads[0])


def card(**changes: object) -> Card:
    """A finished job with every figure."""
    whole = Card(
        id="w-1f2e3d4c5b6a7988", series_id="s-1", name="train-7b", cluster="eu", scheduler="slurm", job_id="4711",
        namespace=None, pod=None, owner=Owner(user="ann", account="ml"), generated_at=START + 10 * HOUR, state="ended",
        scheduler_state="COMPLETED", restarts=None, start=START, end=START + 2 * HOUR, elapsed_seconds=2 * HOUR,
        nodes=("gpu-001",), gpu_sku="H100-SXM5", gpu_count=8, gpu_part=1.0, shared=False, basis="allocation",
        gpu_hours=16.0, asked=Asked(8.0, 64.0, 512 * 2.0**30),
        judged=Judged("training", 0.93, "host-input", 0.88, {"host-input": 0.62, "compute": 0.38}),
        use=Use(1.0, 0.42, 0.12, 0.7, 61e9, 85e9, 0.1, 0.2, 0.79, 0.04, 1.2e9, 3e6, 3.1, None, 0),
        course=Course(START, 150.0, tuple(n / 47 for n in range(48)), (0.12,) * 47 + (None,)), kwh=6.2,
        energy_basis="counter", cost_usd=196.6, idle_usd=38.1,
        price=CardPrice("p", 12.29, "list", "a survey", "2026-09-19", "$98.32 per node-hour at list price, 2026-09-19"),
        compared=Compared(12, 18.1, 0.44, 221.0), next_step=CodedText("card-host-input", "Fix data loading first."),
    )  # fmt: skip
    return replace(whole, **changes)  # type: ignore[arg-type]
