"""Phases: where a workload changes what it does, and where it only seems to."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.classify.phases.change_points import HOUR, PHASES_MAX, turns
from skuwise.tests.support.frame_builder import DECODE, START, TRAINING, FrameBuilder
from skuwise.tests.support.rulebooks import rulebook

_LABELS = {
    "C": "compute", "M": "hbm-bandwidth", ".": "idle", "x": "mixed", "?": "unknown", "H": "host-input", "l": "latency",
    "N": "network",
}  # fmt: skip
_NAMES = sorted(_LABELS.values())
DECODE_STEADY = {**DECODE, "tensor_active": 0.08}


def _turned(course: str, *, waits: bool = False, fabric: Sequence[float] | None = None) -> list[tuple[str, float]]:
    """(label, hours) of the turns of a workload whose hours have these labels."""
    ts = START + HOUR * np.arange(1.0, len(course) + 1)
    found = turns(
        ts, np.full(len(course), HOUR), np.array([_NAMES.index(_LABELS[c]) for c in course]), _NAMES,
        np.full(len(course), np.nan) if fabric is None else np.array(fabric), waits=waits, start=START,
        end=float(ts[-1]),
    )  # fmt: skip
    assert found[0].start == START and found[-1].end == ts[-1]
    assert all(a.end == b.start for a, b in itertools.pairwise(found))
    return [(turn.behaviour.label, (turn.end - turn.start) / HOUR) for turn in found]


@pytest.mark.parametrize(
    "course",
    [
        "C" * 48,
        "?" * 48,
        "x" * 48,
        "M" + "C" * 47,  # its model is loaded
        "C" * 20 + "H" + "C" * 10 + "HH" + "C" * 20,  # late checkpoints
        "C" * 20 + ".." + "C" * 20,  # a pause
        "Cx" * 24,
        "C" * 10 + "M" + "C" * 30,  # once is an accident
        "C",
    ],
)
def test_what_only_flickers_is_one_phase(course: str) -> None:
    assert len(_turned(course)) == 1


@pytest.mark.parametrize(
    ("course", "turned"),
    [
        (("C" * 14 + "x" + "M" * 9) * 3, [("compute", 15), ("hbm-bandwidth", 9)] * 3),  # day and night
        (("C" * 7 + "M") * 6, [("compute", 7), ("hbm-bandwidth", 1)] * 6),  # short turns that recur
        ("C" * 20 + "H" * 6 + "C" * 10, [("compute", 20), ("host-input", 6), ("compute", 10)]),
        ("C" * 20 + "." * 30, [("compute", 20), ("idle", 30)]),
    ],
)
def test_work_turns_where_it_turns(course: str, turned: list[tuple[str, float]]) -> None:
    assert _turned(course) == turned


def test_a_service_does_not_turn_with_its_demand() -> None:
    course = ("M" * 12 + "l" * 6 + "." * 6) * 4
    assert _turned(course, waits=True) == [("hbm-bandwidth", 96)] and len(_turned(course)) > 1


@pytest.mark.parametrize(
    ("fabric", "turned"), [([0.0] * 20 + [1.0] * 28, [20, 28]), ([0.0, 1.0] * 24, [48]), ([0.0] * 45 + [1.0] * 3, [48])]
)
def test_the_fabric_comes_into_use_for_good(fabric: list[float], turned: list[float]) -> None:
    assert _turned("C" * 48, fabric=fabric) == [("compute", hours) for hours in turned]


def test_the_number_of_phases_is_bounded() -> None:
    course = "".join("C" * (3 + n % 5) + "M" * 3 for n in range(400))
    assert 1 <= len(_turned(course)) <= PHASES_MAX


def test_a_node_that_trains_by_day_and_serves_by_night() -> None:
    b = FrameBuilder(hours=96)
    uuids = b.node(gpus=2)
    for uuid, day in itertools.product(uuids, range(0, 96, 24)):
        b.use(TRAINING, uuid=uuid, start=day, end=day + 14)
        b.use(DECODE_STEADY, uuid=uuid, start=day + 14, end=day + 24)
    b.work("w", [("n1", uuid) for uuid in uuids])
    verdict = judge(b.frame(), rulebook()).workloads[0]
    assert [phase.bottleneck for phase in verdict.phases] == ["compute", "hbm-bandwidth"] * 4
    assert {phase.kind for phase in verdict.phases if phase.bottleneck == "compute"} == {"training"}
    assert not {phase.kind for phase in verdict.phases if phase.bottleneck != "compute"} & {"training", "fine-tuning"}
    assert [round((p.end - p.start) / HOUR) for p in verdict.phases] == [14, 10] * 4
    assert all(phase.evidence for phase in verdict.phases)
    # It is what most of its time is, and says that the rest is something else.
    assert (verdict.kind.label, verdict.bottleneck.label) == ("training", "compute")
    assert any("42 % of its time is another activity" in sentence.text for sentence in verdict.kind.evidence)


def test_a_job_whose_fabric_is_used_from_some_day_on() -> None:
    b = FrameBuilder(hours=48)
    gpus = [(n, u) for n in ("n1", "n2") for u in b.node(n, 1)]
    for node, uuid in gpus:
        b.use(TRAINING, node, uuid)
        b.port(0.3, node)
    for row in b.fabric_rows:
        if row["ts"] <= START + 24 * HOUR:  # type: ignore[operator]
            row |= {"util_mean": 0.0, "util_p95": 0.0, "util_max": 0.0}
    b.work("w", gpus)
    verdict = judge(b.frame(), rulebook()).workloads[0]
    assert [phase.start for phase in verdict.phases] == [START, START + 24 * HOUR]
    assert verdict.phases[0].evidence[-1].code == "phase-without-fabric"
    assert verdict.phases[1].evidence[-1].code == "phase-uses-fabric"
