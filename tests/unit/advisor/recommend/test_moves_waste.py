# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false, reportArgumentType=false, reportOperatorIssue=false
"""Findings of waste, and clocks at rest."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.classify.types import RestLevel
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.core.verdict_types import Alternative, BottleneckVerdict, KindVerdict, Phase
from skuwise.advisor.recommend.moves.rest_clocks import RECOVERED
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.support.frame_builder import DECODE, FREE, HELD, HOUR, FrameBuilder
from skuwise.tests.support.frame_builder import START as H_START
from skuwise.tests.support.moves_builders import (
    DAYS,
    END,
    START,
    advice_of,
    bare,
    fabric,
    fired,
    found,
    gpus_of,
    node,
    usage,
    verdicts,
    ways,
    workload,
)
from skuwise.tests.support.rulebooks import rulebook

CATALOG = load_catalog()


@pytest.mark.parametrize("kind", ["training", "fine-tuning", "unknown"])
def test_never_on_training_nor_on_what_nobody_could_tell(kind):
    w = workload("job", ("n1",), kind=kind)
    assert "idle-fabric" not in fired(advice_of(verdicts([node()], [w])))


@pytest.mark.parametrize(
    ("doubtful", "doubt", "flagged"), [(1, 0.3, True), (3, 0.3, True), (6, 0.3, False), (1, 0.33, False)]
)
def test_the_doubt_that_work_trains_is_weighed_by_its_share_of_the_nodes_hours(doubtful, doubt, flagged):
    kind = KindVerdict("batch-inference", 0.7, (), (Alternative("training", doubt),))
    gpus, compute = gpus_of("n1"), BottleneckVerdict("compute", 0.9, {"compute": 1.0})
    job = workload("job", kind=kind, gpus=gpus[:doubtful], bottleneck=compute)
    chat = workload("chat", gpus=gpus[doubtful:])
    advice = advice_of(verdicts([node()], [job, chat]))
    assert ("idle-fabric" in fired(advice)) is flagged


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"readable": False, "reason": "port mlx5_0/1 is DOWN", "util_p995": None}, "port mlx5_0/1 is DOWN"),
        ({"hours": 12.0}, "possible from"),
    ],
)
def test_no_verdict_where_the_fabric_cannot_be_judged_and_the_reason_is_told(changes, said):
    advice = advice_of(verdicts([node(fabric=fabric(**changes))], [workload()]))
    assert "idle-fabric" not in fired(advice)
    assert any(said in n.text for n in advice.notes)


def test_a_node_that_runs_nothing_is_idle_and_its_fabric_is_not_counted_again():
    advice = advice_of(verdicts([node()], [], bare_gpus=[bare("n1", i) for i in range(8)]))
    assert fired(advice) == ["idle"]
    told = found(advice, "idle")
    assert told.workload is None
    assert told.cost_usd == pytest.approx(98.32 * 336)
    assert advice.summary.wasted_usd == pytest.approx(told.cost_usd)


def test_a_telemetry_fault_is_told_as_one_and_is_no_waste():
    faulty = [bare("n1", i, telemetry_fault="power is high while every counter is zero") for i in range(8)]
    advice = advice_of(verdicts([node()], [], bare_gpus=faulty))
    assert fired(advice) == ["telemetry-fault"]
    assert found(advice, "telemetry-fault").cost_usd is None
    assert any("power is high" in n.text for n in advice.notes)
    held = workload("held", kind="idle", features={"fault_share": 0.4})
    advice = advice_of(verdicts([node()], [held], idle_hours={"w-held": 8 * 336.0}))
    assert fired(advice) == ["telemetry-fault"]
    assert advice.summary.wasted_usd == 0
    assert any(n.code == "signals-contradict" for n in advice.notes)


def test_what_never_worked_is_held_idle_and_released_whole():
    held = workload("held", kind="idle")
    given = verdicts([node(fabric=None)], [held], uses=[usage(held, u_c=0, u_m=0, g=0, label="idle")],
                     idle_hours={"w-held": 8 * 336.0})  # fmt: skip
    advice = advice_of(given)
    told = found(advice, "held-idle")
    released = next(r for r in advice.recommendations if r.action == "release")
    assert told.gpu_hours == pytest.approx(8 * 336)
    assert released.realisation == "cash-now"
    assert released.saving_usd_per_month.p50 == pytest.approx(98.32 * 730)


@pytest.mark.parametrize(
    ("life", "renamed", "released"),
    [(36, False, ["node-3"]), (20, False, []), (144, False, ["node-0"]), (36, True, ["node-3"]), (20, True, [])],
)
def test_a_pool_whose_nodes_are_replaced_is_judged_as_one_node_that_stays(life, renamed, released):
    """One node after another, all of them idle: the floor of 30 h is the pool's, a release needs it of its node.
    `renamed`: it is one machine with other names."""
    b = FrameBuilder(hours=144)
    for n, begin in enumerate(range(0, 144, life)):
        uuids = b.node(f"node-{n}", gpus=8, first_seen=H_START + begin * HOUR)
        if renamed:
            uuids = [f"GPU-node-0-{gpu}" for gpu in range(8)]
            for gpu, uuid in zip(b.gpus[-8:], uuids, strict=True):
                gpu["gpu_uuid"] = uuid
        end = min(begin + life, 144)
        b.nodes[-1]["last_seen"] = H_START + end * HOUR
        for uuid in uuids:
            b.use(FREE, f"node-{n}", uuid, start=begin, end=end)
    advice = advice_of(judge(b.frame(), rulebook(CATALOG)))
    summary = advice.summary
    assert (summary.gpu_count, summary.judged_gpu_count, summary.gpu_hours) == (8, 8, pytest.approx(144 * 8))
    assert summary.cost_usd is not None and summary.cost_usd > 0
    assert summary.wasted_usd == pytest.approx(summary.cost_usd)
    assert [r.yardstick.nodes[0] for r in advice.recommendations if not r.blocked_by] == released
    assert not {n.code for n in advice.notes} & {"too-little-data", "idle-seen-too-short"}


def test_idle_gpus_that_half_a_day_is_missing_of_are_named_without_a_verdict():
    b = FrameBuilder(hours=54)
    for uuid in b.node("spare", gpus=8):
        for begin, end in ((0, 20), (32, 54)):
            b.use(FREE, "spare", uuid, start=begin, end=end)
    advice = advice_of(judge(b.frame(), rulebook(CATALOG)))
    (note,) = [n for n in advice.notes if n.code == "idle-partly-observed"]
    assert (fired(advice), note.fields) == ([], {"gpus": 8, "node": "spare", "unobserved_hours": 12.0})


@pytest.mark.parametrize("idle", ["a", "z"])
def test_an_idle_replica_is_released_without_those_that_serve(idle):
    """Whichever of the replicas names the series."""
    pods = [
        workload("api", (f"n{n}",), id=f"w-{name}", kind="idle" if name == idle else "online-inference")
        for n, name in enumerate("amz")
    ]  # fmt: skip
    uses = [usage(w, **({"u_c": 0, "u_m": 0, "g": 0, "label": "idle"} if w.id == f"w-{idle}" else {})) for w in pods]
    nodes = [node(w.nodes[0], fabric=None) for w in pods]
    advice = advice_of(verdicts(nodes, pods, uses=uses, idle_hours={f"w-{idle}": 8 * 336.0}))
    where = next(w.nodes[0] for w in pods if w.id == f"w-{idle}")
    told = found(advice, "held-idle")
    assert (told.node, told.gpus, told.gpu_hours) == (where, gpus_of(where), pytest.approx(8 * 336))
    (released,) = ways(advice, "release")
    assert (released.source.gpu_count, released.yardstick.nodes) == (8, (where,))
    assert released.saving_usd_per_month.p50 == pytest.approx(98.32 * 730)


def _changing(*phases: tuple[float, float, str]):
    spans = tuple(Phase(START + a * 3600, START + z * 3600, kind, "hbm-bandwidth") for a, z, kind in phases)
    return workload("chat", phases=spans)


@pytest.mark.parametrize(
    ("other", "hours", "flagged"),
    [("training", 80, False), ("unknown", 80, False), ("training", 4, True), ("batch-inference", 80, True)],
)
def test_hours_in_which_it_trained_keep_the_fabric(other, hours, flagged):
    changing = _changing((0, 336 - hours, "online-inference"), (336 - hours, 336, other))
    advice = advice_of(verdicts([node()], [changing]))
    assert ("idle-fabric" in {f.rule for f in advice.findings}) is flagged


DRIVER = "580.105.08"
KIND = "rest-clocks"


def resting(w, share=0.75, held=122.0):
    """Use of a service that stands idle in the first `share` of every day."""
    table = usage(w)
    idle = (table["ts"] - 1) % 86400 < share * 86400
    table["bottleneck"] = np.where(idle, "idle", table["bottleneck"])
    table["power_watts"] = np.where(idle, held, table["power_watts"])
    for name in ("u_c", "u_m", "c", "m", "g"):
        table[name] = np.where(idle, 0.0, table[name])
    return table


def levels(name="n1", count=8, held=122.0, free=72.0, held_clock=1.08, free_clock=0.19, sku="H100-SXM5"):
    return tuple(RestLevel(name, gpu, sku, held, free, held_clock, free_clock) for gpu in gpus_of(name, count))


def advice(rest, *, driver=DRIVER, share=0.75, prices=(), power=(), kind="online-inference", nodes=(), **changes):
    w = workload(kind=kind, **changes)
    given = verdicts([node(driver_version=driver), *nodes], [w], uses=[resting(w, share)])
    rules = {"power": power} if power else {}
    return advice_of(replace(given, rest_levels=tuple(rest)), prices, **rules)


def test_the_difference_of_its_own_levels_over_its_rest_is_what_a_month_saves():
    (way,) = ways(advice(levels()), KIND)
    hours = 8 * 730 * 0.75 * (DAYS * 24 - 1) / (DAYS * 24)
    most = 50.0 * hours / 1000
    kwh = way.energy_saving_kwh_per_month
    assert not way.blocked_by
    assert RECOVERED[0] * most * 0.99 <= kwh.p10 <= kwh.p50 <= kwh.p90 <= most * 1.01
    assert way.realisation == "energy"
    assert way.saving_usd_per_month is None
    assert "CUDA_DISABLE_PERF_BOOST=1" in way.text
    assert "0.15 to 0.22 s longer" in way.text
    (late,) = [one for one in way.would_change_if if one.code == "first-request-after-rest"]
    assert late.fields == {"extra_seconds_low": 0.15, "extra_seconds_high": 0.22}


@pytest.mark.parametrize(
    ("driver", "code"),
    [(None, "driver-unknown"), ("abc", "driver-unknown"), ("", "driver-unknown"), ("575.57.08", "driver-too-old"),
     ("580.95.05", "driver-too-old"), ("535", "driver-unknown")],
)  # fmt: skip
def test_a_driver_that_does_not_know_the_variable_blocks_it(driver, code):
    (way,) = ways(advice(levels(), driver=driver), KIND)
    assert [one.code for one in way.blocked_by] == [code]
    assert way.energy_saving_kwh_per_month is None


def test_without_a_free_gpu_anywhere_no_figure_is_told_but_what_would_show_it():
    (way,) = ways(advice(levels(free=None, free_clock=None)), KIND)
    assert [one.code for one in way.blocked_by] == ["rest-level-not-seen"]
    assert way.energy_saving_kwh_per_month is None
    assert "kWh" not in way.text
    # A level without memory held whose clocks are up is a context all the same.
    (way,) = ways(advice(levels(free=118.0, free_clock=1.0)), KIND)
    assert [one.code for one in way.blocked_by] == ["rest-level-not-seen"]


def test_free_gpus_of_its_kind_stand_for_one_that_was_never_free():
    sister = levels("n2", free=72.0)
    (own,) = ways(advice(levels()), KIND)
    (other,) = ways(advice((*levels(free=None, free_clock=None), *sister), nodes=[node("n2")]), KIND)
    assert "on other nodes" in other.text
    a, b = own.energy_saving_kwh_per_month, other.energy_saving_kwh_per_month
    assert b.p50 == pytest.approx(a.p50, rel=0.03)
    assert b.p90 - b.p10 > a.p90 - a.p10
    alien = levels("n2", sku="L40S")
    (none,) = ways(advice((*levels(free=None, free_clock=None), *alien), nodes=[node("n2")]), KIND)
    assert [one.code for one in none.blocked_by] == ["rest-level-not-seen"]


@pytest.mark.parametrize(
    ("rest", "changes"),
    [
        ((), {}),  # power at rest was not measured
        (levels(held=None), {}),
        (levels(count=7), {}),  # of one of its GPUs nothing is known
        (levels(held_clock=0.18, held=73.0), {}),  # its clocks are down already
        (levels(held=72.5), {}),  # nothing to gain
        (levels(), {"share": 0.4}),  # at work most of the time
        (levels(), {"kind": "training"}),
        (levels(), {"shared": True}),
    ],
)
def test_nothing_is_said_where_there_is_nothing_to_gain_or_to_tell(rest, changes):
    assert not ways(advice(rest, **changes), KIND)


def test_frames_tell_levels_clocks_and_drivers():
    made = FrameBuilder(hours=60)
    a, b = made.node(gpus=2, driver=DRIVER)
    idle = {"sm_clock_hertz": 0.345e9}
    made.use(DECODE, uuid=a, end=10)
    made.use(HELD, uuid=a, start=10)
    made.use(FREE | idle, uuid=b)
    made.work("w", [("n1", a)], framework="vllm", command="vllm serve x")
    told = judge(made.frame(), rulebook())
    assert told.node("n1").driver_version == DRIVER
    held, free = told.rest_levels
    assert (held.free_watts, free.held_watts) == (None, None)
    assert held.held_watts == pytest.approx(110.0, rel=0.01)
    assert held.held_clock_ratio > 1
    assert free.free_watts == pytest.approx(70.0, rel=0.01)
    assert free.free_clock_ratio < 0.25
    assert told.workloads[0].features["rest_watts"] == pytest.approx(110.0, rel=0.01)


HOURS = round((END - START) / 3600)
At = Callable[[np.ndarray], np.ndarray]


def advised(kind: str, works: At, engine: float = 0.5, asleep: float = 0.0) -> Advice:
    """A workload that works in the hours (from the window's start) for which `works` holds, else rests with its memory
    held."""
    w = workload("w", kind=kind)
    used = usage(w, label="compute", g=engine)
    hour = (used["ts"].to_numpy() - START) / 3600 - 1
    rests = ~works(hour)
    used["g_max"] = np.where(rests, asleep, 1.0)
    for name in ("u_c", "u_m", "c", "m"):
        used.loc[rests, name] = 0.0
    used.loc[rests, "g"] = asleep
    used.loc[rests, "bottleneck"] = "idle"
    return advice_of(verdicts([node(fabric=None)], [w], uses=[used], idle_hours={w.id: float(rests.sum())}))


def held(advice: Advice) -> float:
    return sum(f.gpu_hours for f in advice.findings if f.rule == "held-idle")


@pytest.mark.parametrize("kind", ["training", "batch-inference", "online-inference", "interactive", "unknown"])
def test_what_is_left_for_days_is_held_whatever_its_kind(kind: str) -> None:
    assert held(advised(kind, lambda hour: hour < HOURS - 60)) == pytest.approx(8 * 60)


@pytest.mark.parametrize("kind", ["training", "batch-inference", "online-inference", "interactive", "unknown"])
def test_nightly_runs_and_the_nights_between_days_are_use(kind: str) -> None:
    assert held(advised(kind, lambda hour: hour % 24 < 4)) == 0


def test_a_rest_that_work_followed_before_may_end_the_same_way() -> None:
    # 50 h without work once, and 60 h at the end: the same weekend and a morning.
    assert held(advised("interactive", lambda h: (h < 100) | ((h >= 150) & (h < HOURS - 60)))) == 0
    assert held(advised("interactive", lambda h: (h < 100) | ((h >= 150) & (h < HOURS - 90)))) == pytest.approx(8 * 90)


def test_a_request_now_and_then_is_use_however_little_it_is() -> None:
    w = workload("rare", kind="idle")
    used = usage(w, u_c=0, u_m=0, g=0.0, label="idle")
    asked = (used["ts"] / 3600) % 5 < 1
    used["g_max"] = np.where(asked, 0.9, 0.0)
    used.loc[asked, "g"] = 0.01
    given = verdicts([node(fabric=None)], [w], uses=[used], idle_hours={w.id: 8.0 * HOURS})
    assert held(advice_of(given)) == 0
