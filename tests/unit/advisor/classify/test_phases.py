"""Features by the hour, and phases: where a workload changes what it does, and where it only seems to."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from skuwise.advisor.classify.features.course import PieceRows, RowTables, course_features
from skuwise.advisor.classify.phases.change_points import HOUR, PHASES_MAX, turns
from skuwise.advisor.core.segments import Segments
from skuwise.tests.support.frame_builder import DECODE, GIB, START, TRAINING, FrameBuilder

_LABELS = {
    "C": "compute", "M": "hbm-bandwidth", ".": "idle", "x": "mixed", "?": "unknown", "H": "host-input", "l": "latency",
    "N": "network",
}  # fmt: skip
_NAMES = sorted(_LABELS.values())


def _turned(course: str, *, waits: bool = False, fabric: Sequence[float] | None = None) -> list[tuple[str, float]]:
    """(label, hours) of the turns of a workload whose hours have these labels."""
    ts = START + HOUR * np.arange(1.0, len(course) + 1)
    result = turns(
        ts, np.full(len(course), HOUR), np.array([_NAMES.index(_LABELS[c]) for c in course]), _NAMES,
        np.full(len(course), np.nan) if fabric is None else np.array(fabric), waits=waits, start=START,
        end=float(ts[-1]),
    )  # fmt: skip
    assert result[0].start == START and result[-1].end == ts[-1]
    assert all(a.end == b.start for a, b in itertools.pairwise(result))
    return [(turn.behaviour.label, (turn.end - turn.start) / HOUR) for turn in result]


@pytest.mark.parametrize(
    ("course", "turned"),
    [
        *((letter * 48, [(_LABELS[letter], 48)]) for letter in "C?x"),
        ("M" + "C" * 47, [("compute", 48)]),  # its model is loaded
        ("C" * 20 + "H" + "C" * 10 + "HH" + "C" * 20, [("compute", 53)]),  # late checkpoints
        ("C" * 20 + ".." + "C" * 20, [("compute", 42)]),  # a pause
        ("Cx" * 24, [("compute", 48)]),
        ("C" * 10 + "M" + "C" * 30, [("compute", 41)]),  # once is an accident
        ("C", [("compute", 1)]),
        (("C" * 14 + "x" + "M" * 9) * 3, [("compute", 15), ("hbm-bandwidth", 9)] * 3),  # day and night
        (("C" * 7 + "M") * 6, [("compute", 7), ("hbm-bandwidth", 1)] * 6),  # short turns that recur
        ("C" * 20 + "H" * 6 + "C" * 10, [("compute", 20), ("host-input", 6), ("compute", 10)]),
        ("C" * 20 + "." * 30, [("compute", 20), ("idle", 30)]),
    ],
)
def test_work_turns_where_it_turns_and_not_where_it_flickers(course: str, turned: list[tuple[str, float]]) -> None:
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
    assert 1 <= len(_turned("".join("C" * (3 + n % 5) + "M" * 3 for n in range(400)))) <= PHASES_MAX


def test_no_rows_no_time_and_no_length_give_no_error() -> None:
    nothing = np.empty(0)
    none, (turn,) = (
        turns(nothing, nothing, nothing.astype(int), _NAMES, nothing, waits=False, start=1.0, end=end) for end in (1, 9)
    )
    assert none == () and turn.behaviour.label == "unknown"


def test_a_node_that_trains_by_day_and_serves_by_night() -> None:
    b = FrameBuilder(hours=96)
    gpus = [("n1", uuid) for uuid in b.node(gpus=2)]
    for gpu, day in itertools.product(gpus, range(0, 96, 24)):
        b.use(TRAINING, *gpu, start=day, end=day + 14)
        b.use(DECODE, *gpu, start=day + 14, end=day + 24)
    b.work("w", gpus)
    verdict = b.judged().workloads[0]
    turned = [(phase.bottleneck, round((phase.end - phase.start) / HOUR)) for phase in verdict.phases]
    assert turned == [("compute", 14), ("hbm-bandwidth", 10)] * 4 and all(phase.evidence for phase in verdict.phases)
    days, nights = ({phase.kind for phase in verdict.phases[first::2]} for first in (0, 1))
    assert days == {"training"} and not nights & {"training", "fine-tuning"}
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
    verdict = b.judged().workloads[0]
    assert [phase.start for phase in verdict.phases] == [START, START + 24 * HOUR]
    assert verdict.phases[0].evidence[-1].code == "phase-without-fabric"
    assert verdict.phases[1].evidence[-1].code == "phase-uses-fabric"


MONDAY = 1_789_948_800.0  # 2026-09-21 00:00 UTC
ACTIVE = 0.05
NAN = float("nan")


def course(
    engine: Sequence[float], *, memory: Sequence[float] | float = 10 * GIB, top: float | None = None,
    length: float = HOUR, gpu: int = 0,
) -> dict[str, np.ndarray]:  # fmt: skip
    """A history of one GPU, a row each `length` seconds; the highest values are the means where none are given."""
    count, level, used = len(engine), np.array(engine), np.broadcast_to(memory, len(engine))
    highest = level if top is None else np.full(count, top)
    return {
        "gpu": np.full(count, gpu, dtype=np.intp), "ts": MONDAY + length * np.arange(1.0, count + 1),
        "interval_seconds": np.full(count, length), "observed_seconds": np.full(count, length),
        "gpu_util_mean": level, "gpu_util_p95": highest, "gpu_util_max": highest, "mem_used_bytes_mean": used,
    }  # fmt: skip


def told(*courses: dict[str, np.ndarray]) -> dict[str, float]:
    """The features of one workload by the series of its GPUs."""
    columns = {name: np.concatenate([c[name] for c in courses]) for name in courses[0]}
    count = len(columns["ts"])
    tables = RowTables(columns, {}, columns["gpu"])
    rows = PieceRows(tables, Segments.of_lengths([count]), np.arange(count), columns["observed_seconds"])
    return {n: float(v[0]) for n, v in course_features(rows, ACTIVE).items() if math.isfinite(v[0])}


DAY_OF_SERVICE = [0.0] * 6 + [0.1, 0.2, 0.4, 0.6, 0.7, 0.7, 0.6, 0.6, 0.7, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1]
NIGHTLY = [0.0, 0.95, 0.95, 0.95, 0.95] + [0.0] * 19
PAUSE = course([0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5])
BLIND = course([NAN] * 24, memory=[(10 + n % 3) * GIB for n in range(24)])
SOME_MISSING = [0.5, NAN, NAN, NAN, 0.5, 0.0]
CALENDAR = ("working_hours_share", "day_before")


@pytest.mark.parametrize(
    ("courses", "figures", "untold"),
    [
        # It rests at night and is like itself the day before.
        ([course(DAY_OF_SERVICE * 3)],
         {"active_share": 18 / 24, "rest_hours_max": 6, "rests_per_day": 1, "day_before": 1.0,
          "working_hours_share": 6.1 / 7.6, "active_engine": sum(DAY_OF_SERVICE) / 18, "between_share": 5 / 18}, []),
        # On or off at the same hours.
        ([course(NIGHTLY * 4)],
         {"active_share": 4 / 24, "active_engine": 0.95, "active_fill": 1.0, "between_share": 0.0, "active_swing": 0.0,
          "day_before": 1.0, "rests_per_day": 1.0, "rest_hours_max": 20}, []),
        # An hour is active by its highest value.
        ([course([0.004] * 30, top=0.6)], {"active_share": 1.0}, []),
        ([course([0.004] * 30)], {"active_share": 0.0}, []),
        # A gap joins no rests and is none.
        ([PAUSE], {"rest_hours_max": 6}, []),
        ([{name: np.delete(column, [3, 4]) for name, column in PAUSE.items()}],
         {"rest_hours_max": 2, "active_share": 2 / 6}, []),
        # Three hours of minutes are seen in tens of them.
        ([course([0.8] * 60 + [0.0] * 30 + [0.8] * 90, length=60.0)],
         {"rest_hours_max": 0.5, "active_share": 150 / 180}, CALENDAR),
        ([course([0.5])], {"active_share": 1.0},
         ["active_swing", "between_share", "mem_hourly_cv", "day_before"]),
        # Of several GPUs the longest rest is the median.
        ([course([0.5] * (12 - n) + [0.0] * n, gpu=gpu) for gpu, n in enumerate((1, 4, 9))], {"rest_hours_max": 4}, []),
        # Engines that are missing leave memory alone to speak, and are not at rest.
        ([BLIND], {}, ["active_share", "working_hours_share", "mem_kept_at_rest"]),
        ([course(SOME_MISSING)], {"active_share": 2 / 3, "rest_hours_max": 1}, []),
    ],
)  # fmt: skip
def test_what_a_course_tells(courses, figures: dict[str, float], untold: Sequence[str]) -> None:
    result = told(*courses)
    assert {name: result[name] for name in figures} == pytest.approx(figures) and not set(untold) & set(result)


def test_memory_that_breathes_changes_from_hour_to_hour() -> None:
    result = told(course([0.5] * 24, memory=[(10 + 4 * (n % 2)) * GIB for n in range(24)]))
    assert result["mem_hourly_cv"] == pytest.approx(2 / 12, rel=0.02) and told(BLIND)["mem_hourly_cv"] > 0


def test_nothing_known_is_nothing_said() -> None:
    assert told(course([NAN] * 5, memory=[NAN] * 5)) == {}
    assert told(course([0.5] * 5) | {"observed_seconds": np.zeros(5)}) == {}
