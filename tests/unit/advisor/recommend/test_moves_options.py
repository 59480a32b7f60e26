# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false
"""Options of a workload: all, those that keep its GPU, and clocks at rest."""

from dataclasses import replace

import pytest
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.classify.types import RestLevel
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.frame import Window
from skuwise.advisor.core.verdict_types import BottleneckVerdict
from skuwise.advisor.recommend.constraints import gates
from skuwise.advisor.recommend.groups import groups_of
from skuwise.advisor.recommend.moves.clocks import RECOVERED
from skuwise.advisor.recommend.predict.clock_model import ClockMove, Draw, at_clock, lower_clock, predict_clock
from skuwise.advisor.recommend.predict.mig_model import predict_slice, weigh_slices
from skuwise.advisor.recommend.prediction import Prediction
from skuwise.advisor.recommend.whatif import predict_count
from skuwise.rules.models import load_power_model
from skuwise.tests.support import moves_builders as made
from skuwise.tests.support.frame_builder import DECODE as DECODING
from skuwise.tests.support.frame_builder import FREE, HELD, FrameBuilder
from skuwise.tests.support.moves_builders import END, PLAIN, catalog, node, usage, use_of, verdicts, ways, workload
from skuwise.tests.support.rulebooks import rulebook

DRIVER = "580.105.08"


def test_a_finished_job_that_does_not_recur_saves_nothing():
    gone = [replace(w, end=END - 3 * 86400) for w in made.founding().workloads[:1]]
    advice = made.advice_of(verdicts([node()], gone))
    assert [f.rule for f in advice.findings] == ["over-tier", "idle-fabric"]
    assert not advice.recommendations and advice.summary.recoverable_usd_per_month == 0.0
    assert any(n.code == "work-is-over" for n in advice.notes)


def test_a_move_is_credited_only_beyond_the_right_sized_count():
    pods = [workload("api", (f"n{i}",), id=f"w-{i}") for i in range(1, 5)]
    uses = [usage(w, u_c=0.05, u_m=0.15, u_n=0.2) for w in pods]
    advice = made.advice_of(verdicts([node(w.nodes[0]) for w in pods], pods, uses=uses))
    finding = made.found(advice, "too-many-gpus")
    assert {e.metric: e.threshold for e in finding.evidence}["gpus_held"] == 16.0
    assert finding.cost_usd == pytest.approx(2 * 98.32 * 336)
    options = {(r.action, r.target.node_sku): r for r in advice.recommendations}
    fewer, moved = options["reduce-gpus", made.IB], options["move-sku", PLAIN]
    assert (fewer.target.gpu_count, moved.target.gpu_count, fewer.realisation) == (16, 16, "cash-now")
    assert "x the current peak demand" in (fewer.break_even or "")
    assert fewer.saving_usd_per_month.p50 == pytest.approx(2 * 98.32 * 730)
    assert moved.saving_usd_per_month.p50 == pytest.approx(2 * 9.832 * 730)
    assert advice.summary.recoverable_usd_per_month == pytest.approx((2 * 98.32 + 2 * 9.832) * 730)


def begun(hours: float, window_hours: float = 336.0):
    """The recommendations for work that began so long ago, in a window of so many hours: a service on silent fabrics,
    training that starves for one, a job that waits for its input, and a server that rests."""
    start = {"start": END - hours * 3600}
    seen = {"first_seen": END - window_hours * 3600, "hours_observed": window_hours, "span_hours": window_hours,
            "driver_version": DRIVER}  # fmt: skip

    def at(name, sku=made.IB, **ports):
        return node(name, sku, fabric=made.fabric(hours=window_hours, hours_known=window_hours, **ports), **seen)

    slow = {"util_p995": 0.9, "util_max": 1.0, "link_layer": "Ethernet", "line_rate_bytes_per_second": 10e9}
    starved = BottleneckVerdict("network", 0.9, {"network": 0.6, "compute": 0.4})
    hungry = BottleneckVerdict("host-input", 0.9, {"host-input": 0.9, "compute": 0.1})
    chat = workload("chat", ("n1", "n2"), **start)
    job = workload("job", ("e1", "e2"), kind="training", node_sku=PLAIN, features={}, bottleneck=starved, **start)
    loads = workload("loads", ("n3",), kind="training", features={}, bottleneck=hungry, **start)
    rests = workload("rests", ("n4",), **start)
    uses = [usage(chat, u_n=0.2), usage(job, u_c=0.4, u_i=0.5), usage(loads, u_c=0.3, g=0.4, label="host-input")]
    nodes = [at("n1"), at("n2"), at("e1", PLAIN, **slow), at("e2", PLAIN, **slow), at("n3"), at("n4")]
    given = verdicts(nodes, [chat, job, loads, rests], uses=[*uses, resting(rests)])
    inventory = replace(given.inventory, span_seconds=window_hours * 3600)
    window = Window(END - window_hours * 3600, END)
    return made.advice_of(replace(given, window=window, inventory=inventory, rest_levels=levels("n4"))).recommendations


def test_training_that_starves_swaps_with_the_silent_service():
    swap = next(r for r in begun(336) if r.action == "swap-placement" and not r.blocked_by)
    assert 0.4 < swap.time_ratio.p50 < 0.6
    assert (swap.saving_usd_per_month, swap.realisation) == (None, "capacity-freed")
    assert swap.freed_gpu_hours_per_month == pytest.approx(16 * 730 * (1 - swap.time_ratio.p50), rel=1e-6)
    assert "1.00x the time" in swap.text


def test_the_same_work_has_the_same_monthly_figures_in_a_window_of_one_week_and_of_two():
    def monthly(window_hours):
        return {
            (r.id, r.action): [
                r.freed_gpu_hours_per_month,
                *(of and of.p50 for of in (r.saving_usd_per_month, r.energy_saving_kwh_per_month)),
            ]
            for r in begun(6 * 24, window_hours)
        }

    week, two = monthly(168.0), monthly(336.0)
    assert {action for _, action in week} >= {"fix-first", "swap-placement", "move-sku", "rest-clocks"}
    assert week == {key: pytest.approx(figures) for key, figures in two.items()}
    hours = {r.observed_hours for r in begun(6 * 24) if r.action in ("fix-first", "rest-clocks")}
    assert hours == {168.0}


@pytest.mark.parametrize(
    ("changes", "use", "target", "said"),
    [
        ({}, {}, "azure/Standard_ND96amsr_A100_v4", "no FP8"),
        ({}, {}, "azure/Standard_ND96is_MI300X_v5", "software stack"),
        ({}, {}, "aws/g6.48xlarge", "required memory unknown"),
        ({"features": {}}, {"memory": 0.8}, "aws/g6e.48xlarge", "uses up to"),
        ({"features": {}}, {"memory": 0.1, "u_n": 0.3}, "aws/g6e.48xlarge", "only by PCIe"),
        ({"shared": True}, {}, "azure/Standard_ND96isr_H200_v5", "shared"),
        ({"nodes": ("n1", "n2"), "kind": "training"}, {}, PLAIN, "needs a fabric"),
        ({}, {"u_n": 0.3}, "azure/Standard_ND128isr_NDR_GB200_v6", "Arm"),
    ],
)
def test_gates_close_with_their_reason(changes, use, target, said):
    w = workload(**changes)
    sold = catalog().node(target)
    (group,) = groups_of(verdicts([node(n) for n in w.nodes], [w], uses=[usage(w, **use)]))
    reasons = gates(group, H100, catalog().node(made.IB), catalog().gpu(sold.gpu), sold)
    assert any(said in r.text for r in reasons), reasons


DECODE = use_of(u_c=0.10, u_m=0.75, g=0.97)
GEMM = use_of(u_c=0.85, u_m=0.30, g=0.98)
LIGHT = use_of(u_c=0.02, u_m=0.08, g=0.10)
POWER = load_power_model()
H100 = catalog().gpu("H100-SXM5")


def test_profiles_are_called_as_the_driver_calls_them():
    names = [p.name(sku.mem_bytes) for sku in (H100, catalog().gpu("H200-SXM")) for p in sku.mig_profiles]
    assert names[:6] == ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]
    assert {"1g.18gb", "3g.71gb", "7g.141gb"} <= set(names[6:])


@pytest.mark.parametrize(
    ("use", "phase", "low", "high"), [(GEMM, "training", 0.9 * 132 / 60, 132 / 60), (DECODE, "serving", 1.5, 2.0)]
)
def test_compute_follows_real_sms_and_memory_follows_eighths(use, phase, low, high):
    (half,) = [p for p in H100.mig_profiles if p.name(H100.mem_bytes) == "3g.40gb"]
    result = predict_slice(H100, half, use, phase)
    assert isinstance(result, Prediction) and low < result.median < high


@pytest.mark.parametrize(
    ("use", "needed", "blocked"),
    [(LIGHT, 4e9, None), (DECODE, 4e9, "load would be"), (LIGHT, None, "memory unknown"), (LIGHT, 70e9, "room for")],
)
def test_light_work_fits_a_small_slice_and_heavy_work_or_much_memory_none(use, needed, blocked):
    fits = weigh_slices(H100, use, "serving", needed_bytes=needed, headroom=0.7)
    if blocked is None:
        assert next(f for f in fits if not f.blocked_by).profile.memory_slices <= 2
    else:
        assert any(blocked in reason.text for reason in fits[0].blocked_by)
        assert needed == 70e9 or all(f.blocked_by for f in fits)


@pytest.mark.parametrize(
    ("use", "phase", "low", "high"), [(DECODE, "serving", 1.0, 1.10), (GEMM, "training", 1.25, 1 / 0.75)]
)
def test_a_lower_clock_costs_decode_little_and_a_gemm_all_of_it(use, phase, low, high):
    result = predict_clock(use, phase, 0.75)
    assert isinstance(result, Prediction) and low < result.median < high
    assert isinstance(predict_clock(use, phase, 0.3), CodedText)


def test_lower_clock_saves_energy_for_memory_bound_work_alone():
    bound = use_of(u_c=0.10, u_m=0.95, g=0.99)
    result = lower_clock(bound, "serving", Draw(300, 80), POWER)
    assert isinstance(result, ClockMove) and result.saves and result.clock_share < 1
    assert result.joules_ratio < 0.95 and result.prediction.interval.p90 <= 1.05
    assert lower_clock(GEMM, "training", Draw(650, 80), POWER) is None
    # A100 serving at 1110 of 1410 MHz, as published: a fifth less at the peak.
    for share, watts in ((1110 / 1410, 320), (1.0, 400)):
        assert at_clock(result.prediction, share, Draw(400, 60), POWER).watts_after == pytest.approx(watts, rel=0.01)


def test_twice_the_gpus_are_less_than_twice_as_fast_where_they_talk():
    use = use_of(u_c=0.6, u_m=0.3, u_n=0.5, g=0.95)
    assert 0.5 < predict_count(use, "training", 4, 8).median < 1
    assert isinstance(predict_count(use, "training", 1, 2), CodedText)


KIND = "rest-clocks"


def resting(w, share=0.75):
    """Use of a service that stands idle in the first `share` of every day."""
    table = usage(w)
    idle = (table["ts"] - 1) % 86400 < share * 86400
    table.loc[idle, ["bottleneck", "power_watts"]] = ["idle", 122.0]
    table.loc[idle, ["u_c", "u_m", "c", "m", "g"]] = 0.0
    return table


def levels(name="n1", count=8, held=122.0, free=72.0, held_clock=1.08, free_clock=0.19, sku="H100-SXM5"):
    return tuple(RestLevel(name, gpu, sku, held, free, held_clock, free_clock) for gpu in made.gpus_of(name, count))


def rest_advice(rest, *, driver=DRIVER, share=0.75, prices=(), power=(), kind="online-inference", nodes=(), **changes):
    w = workload(kind=kind, **changes)
    given = verdicts([node(driver_version=driver), *nodes], [w], uses=[resting(w, share)])
    rules = {"power": power} if power else {}
    return made.advice_of(replace(given, rest_levels=tuple(rest)), prices, **rules)


def test_the_difference_of_its_own_levels_over_its_rest_is_what_a_month_saves():
    (r,) = ways(rest_advice(levels()), KIND)
    hours = 8 * 730 * 0.75 * (made.DAYS * 24 - 1) / (made.DAYS * 24)
    most = 50.0 * hours / 1000
    kwh = r.energy_saving_kwh_per_month
    assert RECOVERED[0] * most * 0.99 <= kwh.p10 <= kwh.p50 <= kwh.p90 <= most * 1.01
    assert (r.blocked_by, r.saving_usd_per_month, r.realisation) == ((), None, "energy")
    assert "CUDA_DISABLE_PERF_BOOST=1" in r.text
    (late,) = [reason for reason in r.would_change_if if reason.code == "first-request-after-rest"]
    assert late.fields == {"extra_seconds_low": 0.15, "extra_seconds_high": 0.22}


@pytest.mark.parametrize(
    ("driver", "seen", "code"),
    [
        (None, {}, "driver-unknown"),
        ("abc", {}, "driver-unknown"),
        ("535", {}, "driver-unknown"),
        ("580.95.05", {}, "driver-too-old"),
        (DRIVER, {"free": None, "free_clock": None}, "rest-level-not-seen"),
        # A level without memory held whose clocks are up is a context all the same.
        (DRIVER, {"free": 118.0, "free_clock": 1.0}, "rest-level-not-seen"),
        (DRIVER, {"held_clock": None}, "rest-clock-not-measured"),
    ],
)
def test_what_is_not_known_and_a_driver_without_the_variable_block_it(driver, seen, code):
    (r,) = ways(rest_advice(levels(**seen), driver=driver), KIND)
    assert ([reason.code for reason in r.blocked_by], r.energy_saving_kwh_per_month) == ([code], None)


def test_free_gpus_of_its_kind_stand_for_one_that_was_never_free():
    (recommendation,) = ways(rest_advice(levels()), KIND)
    (other,) = ways(rest_advice((*levels(count=2), *levels(free=None, free_clock=None)[2:])), KIND)
    assert "free GPUs of its node" in other.text
    a, b = recommendation.energy_saving_kwh_per_month, other.energy_saving_kwh_per_month
    assert b.p50 == pytest.approx(a.p50, rel=0.03)
    assert b.p90 - b.p10 > a.p90 - a.p10
    (none,) = ways(rest_advice((*levels(free=None, free_clock=None), *levels("n2")), nodes=[node("n2")]), KIND)
    assert [reason.code for reason in none.blocked_by] == ["rest-level-not-seen"]


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
    assert not ways(rest_advice(rest, **changes), KIND)


def test_frames_tell_levels_clocks_and_drivers():
    made = FrameBuilder(hours=60)
    a, b = made.node(gpus=2, driver=DRIVER)
    idle = {"sm_clock_hertz": 0.345e9}
    made.use(DECODING, uuid=a, end=10)
    made.use(HELD, uuid=a, start=10)
    made.use(FREE | idle, uuid=b)
    made.work("w", [("n1", a)], framework="vllm", command="vllm serve x")
    verdicts = judge(made.frame(), rulebook())
    assert verdicts.node("n1").driver_version == DRIVER
    held, free = verdicts.rest_levels
    assert (held.free_watts, held.held_watts) == (None, pytest.approx(110.0, rel=0.01))
    assert (free.held_watts, free.free_watts) == (None, pytest.approx(70.0, rel=0.01))
    assert free.free_clock_ratio < 0.25 < 1 < held.held_clock_ratio
    assert verdicts.workloads[0].features["rest_watts"] == pytest.approx(110.0, rel=0.01)
