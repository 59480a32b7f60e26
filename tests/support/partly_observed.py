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
    for name, named in (("n1", 7), ("n2", 8), ("n3", 8), ("n4", 8)):
        azure(b, name, named)
    serves = [("n1", f"GPU-n1-{n}") for n in range(6)]
    young, trains = ([(name, f"GPU-{name}-{n}") for n in range(8)] for name in ("n3", "n4"))
    for gpu in serves:
        b.use(DECODE, *gpu, wave="dram_active")
    for gpu in young:
        b.use(TRAINING, *gpu, start=HOURS - 15)
    for gpu in trains:
        b.use(TRAINING, *gpu)
    for node in ("n1", "n4"):
        b.port(0.4, node)
    b.work("w-serve", serves, name="chat", series="s1", user="ann")
    b.work("w-young", young, start=HOURS - 15, name="young", series="s3", user="bob")
    b.work("w-train", trains, name="train", series="s2", user="cyd")
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
    return advice_of(frame, frame.window.end)


def short(hours: int = 15) -> Frame:
    """A week of one node that was observed in its last `hours`."""
    b = FrameBuilder(hours=168)
    azure(b, "n1")
    b.nodes[-1]["first_seen"] = START + (168 - hours) * HOUR
    gpus = [("n1", f"GPU-n1-{n}") for n in range(8)]
    for gpu in gpus:
        b.use(DECODE, *gpu, start=168 - hours)
    b.work("w", gpus, start=168 - hours, name="chat", user="ann")
    return b.frame()


def loaded(frame: Frame) -> Loaded:
    """What the screens are given of a frame."""
    judged = advised(frame)
    return Loaded(FINDINGS_WINDOW, judged, judged, health_of(frame), frame.window.end, frame)
