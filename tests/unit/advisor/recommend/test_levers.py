# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportOptionalOperand=false
# pyright: reportOptionalSubscript=false, reportArgumentType=false
"""Levers beside the recommendations: precisions, power caps, energy; and `skuwise skus plan`."""

import json
from dataclasses import replace

import numpy as np
import pytest
from skuwise.__main__ import main
from skuwise.advisor.recommend.constraints import room_bytes
from skuwise.advisor.recommend.predict import clock_model
from skuwise.advisor.recommend.predict.capacity_plan import Wanted, plan_serving, plan_training
from skuwise.advisor.recommend.predict.clock_model import REST_MARGIN, Draw, best_cap, cap_range, predict_cap, weigh_cap
from skuwise.advisor.recommend.service_levers import ServedModel, served_model
from skuwise.benchmarks.evaluation import power_caps
from skuwise.benchmarks.fit.power_caps import TABLE, read_caps
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.catalog.price_files import SiteEnergy, SiteFigure
from skuwise.rules.catalog.types import PowerPrice
from skuwise.rules.models import load_move_model, load_power_model, load_resting_power, load_served_models
from skuwise.tests.support import moves_builders as of
from skuwise.tests.support.moves_builders import advice_of, founding, node, verdicts, workload

KNOWN = load_served_models()
LLAMA = "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4"


def advice(command=LLAMA, *, kv=0.3, framework="vllm", **changes):
    features = {"mem_flat": 1.0, "cpu": 0.1, "kv_cache_used_p95": kv}
    w = workload(gpus=of.gpus_of("n1", 4), framework=framework, command=command, features=features, **changes)
    return advice_of(verdicts([node()], [w], uses=[of.usage(w, u_n=0.2)]))


def test_an_empty_cache_lets_fp8_fit_half_of_the_gpus_beside_recommendations_and_in_no_sum():
    answer, without = advice(), advice("vllm serve acme/secret-model")
    by_name = {(lever.fields["sku"], lever.fields["precision"]): lever for lever in answer.workloads[0].levers}
    fewer = by_name["H100-SXM5", "fp8"]
    f, cache = fewer.fields, 0.3 * (0.9 * of.catalog().gpus["H100-SXM5"].mem_bytes * 4 - 140e9)
    assert (answer.workloads[0].levers_unknown, fewer.code) == (None, "lever-precision")
    assert (f["gpus"], f["gpus_now"], f["precision_now"]) == (2, 4, "bf16")
    assert (f["weights_bytes_now"], f["cache_bytes"]) == (pytest.approx(140e9), pytest.approx(cache))
    assert f["read_time_ratio"] == pytest.approx((70e9 + cache) * 2 / (140e9 + cache))
    assert f["matrix_rate_ratio"] == pytest.approx(1.0, abs=0.25)
    assert "First check the quality of its answers" in fewer.text and "$" not in fewer.text
    beside = {r.action for r in answer.recommendations if r.levers}
    assert beside and beside <= {"move-sku", "reduce-gpus", "mig-slice", "consolidate"}
    assert answer.summary == without.summary
    assert tuple(replace(r, levers=()) for r in answer.recommendations) == without.recommendations


NO_LEVER = {
    "command-not-known": [None],
    "model-not-named": ["vllm serve", "vllm serve --model acme/***", ""],
    "model-size-unknown": ["vllm serve acme/secret-model --dtype bfloat16 -tp 4"],
    "model-precision-unknown": ["vllm serve acme/our-70B -tp 4", "vllm serve acme/our-70B -q compressed-tensors -tp 4"],
    "gpus-of-a-copy-unknown": [f"vllm serve meta-llama/Llama-3.1-70B-Instruct{tp}" for tp in ("", " -tp 64")],
    "memory-contradicts-size": ["vllm serve meta-llama/Llama-3.1-405B-Instruct -tp 4"],
}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        *(({"command": command}, code) for code, commands in NO_LEVER.items() for command in commands),
        # What serves no language model has no lever and no gap.
        ({"kind": "training"}, None),
        ({"command": "python train.py --model meta-llama/Llama-3.1-70B", "framework": None}, None),
        ({"command": "tritonserver --model-repository /m", "framework": "triton"}, None),
        ({"shared": True}, None),
    ],
)
def test_what_is_not_known_is_said_and_gives_no_lever(changes, code):
    w = advice(**{"kv": 0.1} | changes).workloads[0]
    assert (w.levers, w.levers_unknown and w.levers_unknown.code) == ((), code)


@pytest.mark.parametrize(
    ("command", "model"),
    [
        (LLAMA, ("llama-3.1-70b-instruct", 70e9, "bf16", 4)),
        ("python -m vllm.entrypoints.openai.api_server --model=Qwen/Qwen2.5-72B-Instruct-AWQ -tp=2",
         ("qwen2.5-72b-instruct-awq", 72e9, "int4", 2)),
        ("vllm serve Qwen/Qwen3-30B-A3B --kv-cache-dtype fp8_e4m3 --tensor_parallel_size 2",
         ("qwen3-30b-a3b", 30e9, "bf16", 2)),
        ("python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8",
         ("deepseek-v3", 671e9, "fp8", 8)),
        ("python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1-Distill-Llama-70B --tp 2",
         ("deepseek-r1-distill-llama-70b", 70e9, "bf16", 2)),
        ("text-generation-launcher --model-id mistralai/Mixtral-8x7B-Instruct-v0.1 --num-shard 2 --quantize fp8",
         ("mixtral-8x7b-instruct-v0.1", 46.7e9, "fp8", 2)),
        ("vllm serve openai/gpt-oss-120b", ("gpt-oss-120b", 117e9, "fp4", None)),
        ("vllm serve acme/our-13B --dtype half -tp 2 -pp 2", ("our-13b", 13e9, "fp16", 4)),
        ("vllm serve /root/.cache/hub/models--meta-llama--Llama-3.1-8B/snapshots/0e9e39f --dtype float32",
         ("llama-3.1-8b", 8e9, "fp32", None)),
        ("vllm serve meta-llama/Llama-4-Scout-17B-16E-Instruct",
         ("llama-4-scout-17b-16e-instruct", 109e9, "bf16", None)),
        ("vllm serve Qwen/Qwen3-8B --notes 'never closed", ("qwen3-8b", 8e9, "bf16", None)),
    ],
)  # fmt: skip
def test_commands_tell_the_model_its_size_and_its_precision(command, model):
    assert served_model(command, KNOWN) == ServedModel(*model)


def typed(capsys: pytest.CaptureFixture[str], words: str) -> tuple[object, str, str]:
    """Status, stdout and stderr of `skuwise skus` with these words."""
    status = main(["skus", *words.split()])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def skus(capsys, words):
    status, out, _ = typed(capsys, f"{words} --format json")
    assert status == 0
    return json.loads(out)


def test_a_batch_whose_cache_does_not_fit_is_blocked_with_the_batch_that_does(capsys):
    words = "compare H100-SXM5 L40S --phase decode --params 8B --gpus 1 --batch"

    def too_large(batch):
        blocked = skus(capsys, f"{words} {batch}")["blocked_by"]
        return {entry["code"]: entry["fields"] for entry in blocked}.get("batch-too-large")

    f = too_large(256)
    most = f["batch_at_most"]
    assert f["needed_bytes"] > f["room_bytes"] and 0 < most < 256 and too_large(most) is None and too_large(most + 1)


CATALOG = load_catalog()
MODEL = load_power_model()
A40, H100 = CATALOG.gpus["A40"], CATALOG.gpus["H100-SXM5"]
BUSY = Draw(270.0, 82.0, 300.0)


def test_a_lower_cap_costs_more_time_and_saves_energy_until_the_knee():
    result = {cap: predict_cap(A40, BUSY, cap, MODEL) for cap in (275.0, 250.0, 225.0, 200.0)}
    assert all(m.watts_after <= cap for cap, m in result.items())
    losses, joules = [m.loss for m in result.values()], [m.joules_ratio for m in result.values()]
    assert (losses, joules) == (sorted(losses), sorted(joules, reverse=True))
    turn = clock_model.knee(A40, BUSY, MODEL)
    assert weigh_cap(A40, BUSY, turn - 40, MODEL).joules_ratio > weigh_cap(A40, BUSY, turn, MODEL).joules_ratio


@pytest.mark.parametrize(
    ("sku", "draw", "cap", "code"),
    [
        (A40, BUSY, 310.0, "cap-outside-range"),
        (A40, BUSY, 90.0, "cap-outside-range"),
        (H100, Draw(650.0, 80.0, 700.0), 199.0, "cap-outside-range"),
        (H100, Draw(650.0, 80.0, 700.0), 220.0, "cap-too-low"),
        (A40, BUSY, 120.0, "cap-below-knee"),
        (A40, Draw(120.0, 82.0, 300.0), 280.0, "cap-without-effect"),
        (A40, BUSY, float("nan"), "cap-outside-range"),
    ],
)
def test_caps_that_cannot_be_told_of_or_do_no_good_are_refused(sku, draw, cap, code):
    assert predict_cap(sku, draw, cap, MODEL).code == code


def test_the_range_is_the_drivers_where_it_is_known_and_a_measured_share_elsewhere():
    b200 = CATALOG.gpus["B200-SXM"]
    ranges = (cap_range(A40, MODEL), b200.min_limit_watts, cap_range(b200, MODEL))
    assert ranges == ((100.0, 300.0), None, (MODEL.lowest_cap_share * b200.tdp_watts, b200.tdp_watts))


def test_what_is_proposed_saves_at_the_ninetieth_percentile_also_at_more_rest():
    move = best_cap(A40, BUSY, MODEL, most_loss=0.1, most_loss_p90=0.2)
    assert move.saves and move.loss <= 0.1 and move.prediction.interval.p90 <= 1.2
    assert weigh_cap(A40, replace(BUSY, rest_watts=REST_MARGIN * 82), move.cap_watts, MODEL).saves
    for draw, loss, p90 in ((BUSY, 0.0, 0.0), (Draw(84.0, 82.0, 300.0), 0.1, 0.2)):
        assert best_cap(A40, draw, MODEL, most_loss=loss, most_loss_p90=p90) is None


def test_predictions_hold_on_what_was_left_out():
    lines, _ = read_caps(TABLE, CATALOG, load_resting_power())
    answer = power_caps.held_out(lines, lambda c: c.gpu)
    for predicted, measured in (
        ([t.time for t in answer], [t.capped.time for t in answer]),
        ([t.joules for t in answer], [t.capped.joules for t in answer]),
    ):
        errors = np.abs(np.array([p.p50 for p in predicted]) / measured - 1)
        assert np.median(errors) <= 0.06 and np.percentile(errors, 90) <= 0.18
        inside = [p.p10 <= value <= p.p90 for p, value in zip(predicted, measured, strict=True)]
        assert 0.76 <= np.mean(inside) <= 0.86


NIGHT = tuple(0.05 if hour < 6 else 0.20 for hour in range(24))
SITE = SiteEnergy(
    SiteFigure("bill", "2026-11-01", by_hour_utc=NIGHT), SiteFigure("meter", "2026-10-01", 1.5),
    SiteFigure("grid", "2026-11-01", 400.0),
)  # fmt: skip
# 16 GPUs at 300 W for 14 days.
KWH = 16 * 0.3 * 14 * 24


def test_dollars_and_carbon_follow_the_hours_of_the_day_and_the_pue():
    advice = advice_of(founding(), energy=SITE)
    e = advice.summary.energy
    usd = pytest.approx(KWH * 1.5 * (6 * 0.05 + 18 * 0.20) / 24)
    assert (e.usd, e.co2_kg) == (usd, pytest.approx(KWH * 1.5 * 0.4))
    figures = [(f.name, f.value, len(f.by_hour_utc)) for f in e.figures]
    assert figures == [("usd_per_kwh", None, 24), ("pue", 1.5, 0), ("co2_grams_per_kwh", 400.0, 0)]
    # They are in no other dollar: the nodes' cost is what it was.
    assert advice.summary.cost_usd == advice_of(founding()).summary.cost_usd
    assert sum(w.energy.usd or 0 for w in advice.workloads) == usd == sum(n.usd or 0 for n in advice.node_energy)


def test_the_price_files_power_of_the_nodes_region_stands_in():
    power = [PowerPrice(region, usd, "bill", "2026-11-01") for region, usd in (("eastus", 0.08), ("westeurope", 0.3))]
    nodes = [node(f"n{n}", region=region) for n, region in enumerate(("eastus", "westeurope", "mars"), 1)]
    e = advice_of(of.drawing(verdicts(nodes, [workload("chat", ("n1",))])), power=power)
    each = 8 * 0.3 * 14 * 24
    assert [n.usd for n in e.node_energy] == [pytest.approx(each * 0.08), pytest.approx(each * 0.3), None]
    assert [(f.region, f.value) for f in e.summary.energy.figures] == [("eastus", 0.08), ("westeurope", 0.3)]


def test_what_was_not_measured_is_none_and_counted():
    given = founding()
    blind = replace(given, energy=given.energy.assign(measured_hours=0.0, joules=0.0, counted_joules=0.0), tokens={})
    e = advice_of(blind, energy=SITE).summary.energy
    assert (e.kwh, e.counted_kwh, e.idle_kwh, e.usd, e.co2_kg, e.basis, e.by_use) == (None,) * 7
    assert e.measured_gpu_hours == 0 and e.unmeasured_gpu_hours == pytest.approx(16 * 14 * 24)


def test_idle_hours_of_a_workload_have_their_energy_and_no_tokens():
    held = verdicts([node()], [workload("left", ("n1",))], idle_hours={"w-left": 8 * 24.0})
    e = advice_of(of.drawing(held, 100.0)).workloads[0].energy
    assert (e.idle_kwh, e.joules_per_token) == (pytest.approx(8 * 24 * 0.1), None)
    assert {p.phase for p in e.phases} == {"idle", "decode"}


MOVES = load_move_model()
WANTED = Wanted(70e9, None, "fp8", "bf16", input_tokens=7680, output_tokens=512)


def training():
    return plan_training(WANTED, CATALOG, MOVES, CATALOG.nodes.values())


def serving(**changes):
    return plan_serving(replace(WANTED, **changes), CATALOG, MOVES, CATALOG.nodes.values())


def test_memory_of_training_and_serving_fits_the_gpus_and_four_do_not_serve_over_pcie():
    for plan in (*training(), *serving()):
        assert plan.needed <= plan.room == room_bytes(plan.gpu.mem_bytes)
    for plan in training():  # states are sixteen bytes a parameter, over all GPUs
        assert plan.memory["states"] * plan.gpus == pytest.approx(16 * 70e9)
    for plan in serving():
        assert plan.memory["weights"] * plan.group_gpus == pytest.approx(70e9)
        assert plan.group_gpus < 4 or plan.node.intra_node_link in ("nvswitch", "nvlink-bridge")


def test_training_across_nodes_has_an_rdma_fabric_and_serving_pays_for_none_and_has_two_replicas_at_least():
    spanning = [p for p in training() if p.needs_fabric]
    assert spanning and all(p.node.fabric.rdma for p in spanning)
    few, many = serving(load_requests=0.01), serving(load_requests=50.0)
    for served in (few, many):
        assert not served[0].needs_fabric and served[0].usd_per_hour == min(p.usd_per_hour for p in served)
    assert few[0].figures["replicas"] == 2 and many[0].figures["requests_per_second"] >= 50 / 0.7
    assert many[0].usd_per_hour > few[0].usd_per_hour


def test_json_holds_both_configurations_with_prices_and_their_dates(capsys):
    answer = skus(capsys, "plan --params 70B --precision fp8 --load 5rps")
    assert answer["schema"] == "skuwise.plan/1"
    for best in (answer["training"][0], answer["serving"][0]):
        assert best["usd_per_hour"] == pytest.approx(best["nodes"] * best["price"]["usd_per_hour"])
        assert best["price"]["as_of"] and best["price"]["source"]
        assert best["memory_bytes_per_gpu"]["needed"] <= best["memory_bytes_per_gpu"]["room"]


HEAD = ["from", "to", "phase", "precision", "time_ratio", "blocked_by", "basis"]


HUGE = "compare H100 H200-SXM --phase decode --precision fp8 --params 5000B --gpus 64 --batch 9999"


def test_the_table_says_the_basis_and_what_forbids_or_lies_outside(capsys):
    _, outside, _ = typed(capsys, f"{HUGE} --attention-copies 2 --cache-precision bf16")
    assert all(said in outside for said in ("for each token", "not 5,000 B", "times as many tokens a second"))
    status, forbidden, _ = typed(capsys, "compare H100 L40S --phase decode --precision fp8 --params 70B --gpus 4")
    assert status == 0 and "basis" in forbidden and "only PCIe" in forbidden


def test_a_batch_is_answered_by_the_token_and_says_what_lies_outside(capsys):
    answer = skus(capsys, HUGE)
    assert [*answer, *answer["time_ratio"]] == [*HEAD, "speedup", "outside", "p10", "p50", "p90"]
    assert {"size-not-calibrated", "batch-not-calibrated"} <= {entry["code"] for entry in answer["outside"]}
    assert answer["speedup"] > 1  # more sequences in flight, though each of them waits longer


def test_a_cap_is_answered_with_time_watts_and_joules(capsys):
    answer = skus(capsys, "compare H100 H100 --power-limit 500W --phase prefill --power-at-work 650")
    assert list(answer)[:7] == HEAD
    assert 1.0 < answer["time_ratio"]["p50"] < 1.2
    assert (answer["watts"]["before"], answer["watts"]["measured"], answer["power_limit_watts"]) == (650, True, 500)
    assert answer["watts"]["after"] < 500
    joules, ratio = answer["joules_a_unit"], answer["joules_ratio"]["p50"]
    assert joules["unit"] == "request" and joules["after"] / joules["before"] == pytest.approx(ratio)
    assert ratio < 1 and answer["blocked_by"] == [] and "none on Hopper" in answer["basis"]


COMPARE, SELF, PLAN = "compare H100 L40S", "compare H100 H100", "plan --params 7B"
BAD = {
    "--params": ["plan"],
    "Use a number with a unit": ["plan --params 0", f"{COMPARE} --params -3", f"{COMPARE} --params 1e99"],
    "larger than --params": [f"{PLAN} --active-params 9B", f"{COMPARE} --params 7B --active-params 13B"],
    "no rate": [f"{PLAN} --load many", f"{PLAN} --load 0rps"],
    "not a span of time": [f"{PLAN} --latency soon"],
    "longer than any": [f"{PLAN} --context 100000000"],
    "no room for a prompt": [f"{PLAN} --context 8 --output-tokens 8"],
    "needs --train-tokens": [f"{PLAN} --train-time 3d"],
    "no provider": [f"{PLAN} --provider nobody"],
    "no GPU": [f"{PLAN} --gpu H999"],
    "no GPU 'H999'": ["compare H100 H999"],
    "needs --params": [f"{COMPARE} --active-params 13B"],
    "above zero": [f"{COMPARE} --batch 0"],
    "Invalid value": [f"{COMPARE} --precision fp7"],
    "outside the 200 to 700 W": [f"{SELF} --power-limit 150", f"{SELF} --power-limit 701W"],
    "the lowest cap with measurements": [f"{SELF} --power-limit 210"],
    "Ask for 333 to 1000 W": ["compare B200-SXM B200-SXM --power-limit 300"],
    "Use watts": [f"{SELF} --power-limit {watts}" for watts in ("0", "-5", "nan")],
    "are two": [f"{COMPARE} --power-limit 300", f"{COMPARE} --sm-clock 1110MHz"],
    "Use a clock": [f"{SELF} --sm-clock 1110"],
    "outside the 990 to 1980 MHz": [f"{SELF} --sm-clock 500MHz"],
    "exclude each other": [f"{SELF} --sm-clock 1110MHz --power-limit 500"],
    "needs --power-limit or --sm-clock": [f"{SELF} --power-at-work 500"],
    "at most 700 W": [f"{SELF} --power-limit 500 --power-at-work 900"],
    "at rest": [f"{SELF} --power-limit 500 --power-at-work 20"],
}


@pytest.mark.parametrize(("words", "answer"), [(words, answer) for answer, several in BAD.items() for words in several])
def test_bad_input_is_refused_in_a_sentence(capsys, words, answer):
    status, out, err = typed(capsys, words)
    assert (status, out) == (2, "") and answer in err and "Traceback" not in err
