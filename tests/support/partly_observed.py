"""Fleets of which a part was not observed, judged by the real advisor."""

from functools import cache

from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.show.series.health import health_of
from skuwise.tests.support.frame_builder import DECODE, HOUR, START, TRAINING, FrameBuilder
from skuwise.tests.support.rulebooks import advice_of
from skuwise.tui.state import FINDINGS_WINDOW, Loaded

HOURS = 48


def azure(b: FrameBuilder, name: str, named: int = 8) -> None:
    b.node(name, 8)
    b.nodes[-1] |= {"provider": "azure", "region": "eastus"}
    del b.gpus[len(b.gpus) - 8 + named :]


@cache
def dark() -> Frame:
    """Four nodes of 8 GPUs: one lacks the rows of a GPU and the name of another, one has no driver, one was observed
    for 15 hours, and one is whole. 10 of 32 GPUs were not observed, and waste can be judged on 14."""
    b = FrameBuilder(hours=HOURS)
    azure(b, "n1", named=7)
    azure(b, "n2")
    azure(b, "n3")
    azure(b, "n4")
    for n in range(6):
        b.use(DECODE, "n1", f"GPU-n1-{n}", wave="dram_active")
    for n in range(8):
        b.use(TRAINING, "n3", f"GPU-n3-{n}", start=HOURS - 15)
        b.use(TRAINING, "n4", f"GPU-n4-{n}")
    for node in ("n1", "n4"):
        b.port(0.4, node)
    b.work("w-serve", [("n1", f"GPU-n1-{n}") for n in range(6)], name="chat", series="s1", user="ann")
    b.work(
        "w-young", [("n3", f"GPU-n3-{n}") for n in range(8)], start=HOURS - 15, name="young", series="s3", user="bob"
    )
    b.work("w-train", [("n4", f"GPU-n4-{n}") for n in range(8)], name="train", series="s2", user="cyd")
    b.absences += [
        {"node": "n2", "device": "nvml", "scope": "source", "metric": "*", "reason": "no-driver",
         "detail": "The NVIDIA driver is not loaded.", "remedy": "Load it.", "since": START},
        {"node": "n2", "device": "vllm", "scope": "source", "metric": "*", "reason": "page-unreachable",
         "detail": "The page is down.", "remedy": "Start it.", "since": START - HOUR},
    ]  # fmt: skip
    return b.frame()


@cache
def advice() -> Advice:
    return advised(dark())


def advised(frame: Frame) -> Advice:
    end = frame.window.end
    return advice_of(frame, end)


def short(hours: int = 15) -> Frame:
    """A week of one node that was observed in its last `hours`."""
    b = FrameBuilder(hours=168)
    azure(b, "n1")
    b.nodes[-1] |= {"first_seen": START + (168 - hours) * HOUR}
    for n in range(8):
        b.use(DECODE, "n1", f"GPU-n1-{n}", start=168 - hours)
    b.work("w", [("n1", f"GPU-n1-{n}") for n in range(8)], start=168 - hours, name="chat", user="ann")
    return b.frame()


def loaded(frame: Frame) -> Loaded:
    """What the screens are given of a frame."""
    judged = advised(frame)
    return Loaded(FINDINGS_WINDOW, judged, judged, health_of(frame), frame.window.end, frame)
