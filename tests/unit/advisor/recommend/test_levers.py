# pyright: reportOptionalMemberAccess=false, reportOperatorIssue=false
"""Lower precisions as levers: what fits fewer or smaller GPUs, from what is known of a service, and in no sum."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from skuwise.__main__ import main
from skuwise.advisor.recommend.predict.clock_model import (
    REST_MARGIN,
    ClockMove,
    Draw,
    best_cap,
    cap_range,
    knee,
    predict_cap,
    weigh_cap,
)
from skuwise.advisor.recommend.prediction import Refusal
from skuwise.advisor.recommend.service_levers import ServedModel, served_model
from skuwise.benchmarks.evaluation import power_caps
from skuwise.benchmarks.fit.power_caps import TABLE, read_caps
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.catalog.site_energy import SiteEnergy, SiteFigure
from skuwise.rules.catalog.types import PowerPrice
from skuwise.rules.models.power_model import load_power_model
from skuwise.rules.models.resting_power import load_resting_power
from skuwise.rules.models.served_models import load_served_models
from skuwise.tests.support.moves_builders import (
    advice_of,
    catalog,
    drawing,
    founding,
    gpus_of,
    node,
    usage,
    verdicts,
    workload,
)

KNOWN = load_served_models()
LLAMA = "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4"
TOLD = {"mem_flat": 1.0, "cpu": 0.1}


def advice(command=LLAMA, *, count=4, memory=0.9, kv=None, framework="vllm", **changes):
    features = TOLD | ({} if kv is None else {"kv_cache_used_p95": kv})
    w = workload(gpus=gpus_of("n1", count), framework=framework, command=command, features=features, **changes)
    return advice_of(verdicts([node()], [w], uses=[usage(w, u_n=0.2, memory=memory)]))


def of_workload(told):
    return told.workloads[0].levers, told.workloads[0].levers_unknown


def test_an_empty_cache_lets_fp8_fit_half_of_the_gpus():
    told = advice(kv=0.3)
    levers, unknown = of_workload(told)
    assert unknown is None
    fewer = next(one for one in levers if one.fields["sku"] == "H100-SXM5" and one.fields["precision"] == "fp8")
    f = fewer.fields
    assert fewer.code == "lever-precision"
    assert (f["gpus"], f["gpus_now"], f["sku"], f["precision_now"]) == (2, 4, "H100-SXM5", "bf16")
    used = 0.9 * catalog().gpus["H100-SXM5"].mem_bytes * 4
    assert f["weights_bytes_now"] == pytest.approx(140e9)
    assert f["cache_bytes"] == pytest.approx(0.3 * (used - 140e9))
    assert f["read_time_ratio"] == pytest.approx((70e9 + f["cache_bytes"]) * 2 / (140e9 + f["cache_bytes"]))
    assert f["matrix_rate_ratio"] == pytest.approx(1.0, abs=0.25)
    assert fewer.text.startswith("if served in FP8: ")
    assert "First check the quality of its answers" in fewer.text
    assert "$" not in fewer.text


def test_levers_stand_beside_recommendations_and_in_no_sum():
    with_it, without = advice(kv=0.3), advice("vllm serve acme/secret-model", kv=0.3)
    beside = [r for r in with_it.recommendations if r.levers]
    assert beside
    assert {r.action for r in beside} <= {"move-sku", "reduce-gpus", "mig-slice", "consolidate"}
    assert with_it.summary == without.summary
    plain = tuple(replace(r, levers=()) for r in with_it.recommendations)
    assert plain == without.recommendations


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (None, "command-not-known"),
        ("vllm serve", "model-not-named"),
        ("vllm serve --model acme/***", "model-not-named"),
        ("vllm serve acme/secret-model --dtype bfloat16 -tp 4", "model-size-unknown"),
        ("vllm serve acme/our-70B -tp 4", "model-precision-unknown"),
        ("vllm serve acme/our-70B -q compressed-tensors -tp 4", "model-precision-unknown"),
        ("vllm serve meta-llama/Llama-3.1-70B-Instruct", "gpus-of-a-copy-unknown"),
        ("vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 64", "gpus-of-a-copy-unknown"),
        ("vllm serve meta-llama/Llama-3.1-405B-Instruct -tp 4", "memory-contradicts-size"),
    ],
)
def test_what_is_not_known_is_said_and_gives_no_lever(command, code):
    levers, unknown = of_workload(advice(command, kv=0.1))
    assert levers == ()
    assert unknown.code == code


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "training"},
        {"command": "python train.py --model meta-llama/Llama-3.1-70B", "framework": None},
        {"command": "tritonserver --model-repository /m", "framework": "triton"},
        {"shared": True},
    ],
)
def test_what_serves_no_language_model_has_neither_lever_nor_gap(changes):
    assert of_workload(advice(**{"kv": 0.1} | changes)) == ((), None)


@pytest.mark.parametrize(
    ("command", "model"),
    [
        (LLAMA, ServedModel("llama-3.1-70b-instruct", 70e9, "bf16", 4)),
        ("python -m vllm.entrypoints.openai.api_server --model=Qwen/Qwen2.5-72B-Instruct-AWQ -tp=2",
         ServedModel("qwen2.5-72b-instruct-awq", 72e9, "int4", 2)),
        ("vllm serve Qwen/Qwen3-30B-A3B --kv-cache-dtype fp8_e4m3 --tensor_parallel_size 2",
         ServedModel("qwen3-30b-a3b", 30e9, "bf16", 2)),
        ("python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8",
         ServedModel("deepseek-v3", 671e9, "fp8", 8)),
        ("python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1-Distill-Llama-70B --tp 2",
         ServedModel("deepseek-r1-distill-llama-70b", 70e9, "bf16", 2)),
        ("text-generation-launcher --model-id mistralai/Mixtral-8x7B-Instruct-v0.1 --num-shard 2 --quantize fp8",
         ServedModel("mixtral-8x7b-instruct-v0.1", 46.7e9, "fp8", 2)),
        ("vllm serve openai/gpt-oss-120b", ServedModel("gpt-oss-120b", 117e9, "fp4", None)),
        ("vllm serve acme/our-13B --dtype half -tp 2 -pp 2", ServedModel("our-13b", 13e9, "fp16", 4)),
        ("vllm serve /root/.cache/hub/models--meta-llama--Llama-3.1-8B/snapshots/0e9e39f --dtype float32",
         ServedModel("llama-3.1-8b", 8e9, "fp32", None)),
        ("vllm serve meta-llama/Llama-4-Scout-17B-16E-Instruct",
         ServedModel("llama-4-scout-17b-16e-instruct", 109e9, "bf16", None)),
        ("vllm serve Qwen/Qwen3-8B --notes 'never closed", ServedModel("qwen3-8b", 8e9, "bf16", None)),
    ],
)  # fmt: skip
def test_commands_tell_the_model_its_size_and_its_precision(command, model):
    assert served_model(command, KNOWN) == model


def compared(capsys, *words):
    assert main(["skus", "compare", *words, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_compare_names_the_precision_in_which_weights_fit(capsys):
    told = compared(capsys, "H100-SXM5", "L40S", "--phase", "decode", "--params", "70B", "--gpus", "2")
    assert "weights-too-large" in {one["code"] for one in told["blocked_by"]}
    assert {one["code"] for one in told["levers"]} == {"lever-weights-fit"}
    assert [one["fields"]["precision"] for one in told["levers"]] == ["fp8", "int4"]
    assert told["levers"][0]["fields"]["gpus_at_least"] == 2
    assert "levers" not in compared(capsys, "H100-SXM5", "L40S", "--phase", "decode", "--params", "8B", "--gpus", "2")
    none = compared(capsys, "H100-SXM5", "V100", "--phase", "decode", "--params", "70B", "--gpus", "4")
    assert "levers" not in none


def test_plans_name_the_precision_in_which_fewer_gpus_do(capsys):
    words = ["skus", "plan", "--params", "70B", "--load", "20rps", "--latency", "1s", "--format", "json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    first = told["serving"][0]
    (fp8, *_) = told["levers"]
    assert fp8["fields"]["precision"] == "fp8"
    assert fp8["fields"]["sku"] == first["gpu_sku"]
    assert fp8["fields"]["gpus"] < fp8["fields"]["gpus_now"] == first["gpus"]
    assert "$" not in fp8["text"]
    assert main([*words, "--precision", "int4"]) == 0
    assert "levers" not in json.loads(capsys.readouterr().out)


def test_a_batch_whose_cache_does_not_fit_is_blocked_with_the_batch_that_does(capsys):
    words = ("H100-SXM5", "L40S", "--phase", "decode", "--params", "8B", "--gpus", "1")
    told = compared(capsys, *words, "--batch", "256")
    why = next(one for one in told["blocked_by"] if one["code"] == "batch-too-large")
    f = why["fields"]
    assert f["needed_bytes"] > f["room_bytes"]
    assert 0 < f["batch_at_most"] < 256
    fits = compared(capsys, *words, "--batch", str(f["batch_at_most"]))
    assert "batch-too-large" not in {one["code"] for one in fits["blocked_by"]}
    more = compared(capsys, *words, "--batch", str(f["batch_at_most"] + 1))
    assert "batch-too-large" in {one["code"] for one in more["blocked_by"]}


CATALOG = load_catalog()
MODEL = load_power_model()
RESTING = load_resting_power()
A40, H100 = CATALOG.gpus["A40"], CATALOG.gpus["H100-SXM5"]
BUSY = Draw(270.0, 82.0, 300.0)


@pytest.fixture(scope="module")
def lines():
    found, _ = read_caps(TABLE, CATALOG, RESTING)
    return found


def moved(draw: Draw, cap: float, sku=A40) -> ClockMove:
    found = predict_cap(sku, draw, cap, MODEL)
    assert isinstance(found, ClockMove)
    return found


def refusal(sku, draw: Draw, cap: float) -> str:
    found = predict_cap(sku, draw, cap, MODEL)
    assert isinstance(found, Refusal)
    return found.reason.code


def test_a_lower_cap_costs_more_time_and_saves_energy_until_the_knee():
    caps = (275.0, 250.0, 225.0, 200.0)
    found = [moved(BUSY, cap) for cap in caps]
    assert [m.loss for m in found] == sorted(m.loss for m in found)
    assert [m.joules_ratio for m in found] == sorted((m.joules_ratio for m in found), reverse=True)
    assert all(m.watts_after <= cap for m, cap in zip(found, caps, strict=True))
    turn = knee(A40, BUSY, MODEL)
    assert turn is not None
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
    assert refusal(sku, draw, cap) == code


def test_the_range_is_the_drivers_where_it_is_known_and_a_measured_share_elsewhere():
    assert cap_range(A40, MODEL) == (100.0, 300.0)
    b200 = CATALOG.gpus["B200-SXM"]
    assert b200.min_limit_watts is None
    assert cap_range(b200, MODEL) == (MODEL.lowest_cap_share * b200.tdp_watts, b200.tdp_watts)


def test_what_is_proposed_saves_at_the_ninetieth_percentile_also_at_more_rest():
    found = best_cap(A40, BUSY, MODEL, most_loss=0.1, most_loss_p90=0.2)
    assert not isinstance(found, Refusal)
    move, cap = found
    assert move.saves
    assert move.loss <= 0.1
    assert move.prediction.interval.p90 <= 1.2
    assert weigh_cap(A40, replace(BUSY, rest_watts=REST_MARGIN * 82), cap, MODEL).saves
    assert isinstance(best_cap(A40, BUSY, MODEL, most_loss=0.0, most_loss_p90=0.0), Refusal)
    assert isinstance(best_cap(A40, Draw(84.0, 82.0, 300.0), MODEL, most_loss=0.1, most_loss_p90=0.2), Refusal)


@pytest.mark.parametrize("by", ["gpu"])
def test_predictions_hold_on_what_was_left_out(lines, by):
    told = power_caps.held_out(lines, lambda c: getattr(c, by))
    time, joules = [t.time_error for t in told], [t.joules_error for t in told]
    assert np.median(time) <= 0.06
    assert np.percentile(time, 90) <= 0.18
    assert np.median(joules) <= 0.06
    assert np.percentile(joules, 90) <= 0.18
    inside = np.mean([t.time_between[0] <= t.capped.time <= t.time_between[1] for t in told])
    assert 0.76 <= inside <= 0.86
    energy = np.mean([t.joules_between[0] <= t.capped.joules <= t.joules_between[1] for t in told])
    assert 0.76 <= energy <= 0.86


NIGHT = tuple(0.05 if hour < 6 else 0.20 for hour in range(24))
SITE = SiteEnergy(
    SiteFigure(NIGHT, "bill", "2026-11-01"), SiteFigure((1.5,), "meter", "2026-10-01"),
    SiteFigure((400.0,), "grid", "2026-11-01"),
)  # fmt: skip
# 16 GPUs at 300 W for 14 days.
KWH = 16 * 0.3 * 14 * 24


def test_dollars_and_carbon_follow_the_hours_of_the_day_and_the_pue():
    advice = advice_of(founding(), energy=SITE)
    e = advice.summary.energy
    assert e.usd == pytest.approx(KWH * 1.5 * (6 * 0.05 + 18 * 0.20) / 24)
    assert e.co2_kg == pytest.approx(KWH * 1.5 * 0.4)
    assert [(f.name, f.value, len(f.by_hour_utc)) for f in e.figures] == [
        ("usd_per_kwh", None, 24), ("pue", 1.5, 0), ("co2_grams_per_kwh", 400.0, 0),
    ]  # fmt: skip
    # They are in no other dollar: the nodes' cost is what it was.
    assert advice.summary.cost_usd == advice_of(founding()).summary.cost_usd
    assert sum(w.energy.usd or 0 for w in advice.workloads) == pytest.approx(e.usd)
    assert sum(n.usd or 0 for n in advice.node_energy) == pytest.approx(e.usd)


def test_the_price_files_power_of_the_nodes_region_stands_in():
    power = [PowerPrice("eastus", 0.08, "bill", "2026-11-01"), PowerPrice("westeurope", 0.3, "bill", "2026-11-01")]
    given = drawing(verdicts([node("n1", region="eastus"), node("n2", region="westeurope"), node("n3", region="mars")],
                             [workload("chat", ("n1",))]))  # fmt: skip
    e = advice_of(given, power=power)
    by_node = {n.node: n.usd for n in e.node_energy}
    each = 8 * 0.3 * 14 * 24
    assert by_node == {"n1": pytest.approx(each * 0.08), "n2": pytest.approx(each * 0.3), "n3": None}
    assert [(f.region, f.value) for f in e.summary.energy.figures] == [("eastus", 0.08), ("westeurope", 0.3)]


def test_what_was_not_measured_is_none_and_counted():
    given = founding()
    blind = replace(given, energy=given.energy.assign(measured_hours=0.0, joules=0.0, counted_joules=0.0), tokens={})
    e = advice_of(blind, energy=SITE).summary.energy
    assert (e.kwh, e.counted_kwh, e.idle_kwh, e.usd, e.co2_kg, e.basis, e.by_use) == (None,) * 7
    assert e.measured_gpu_hours == 0 and e.unmeasured_gpu_hours == pytest.approx(16 * 14 * 24)


def test_tokens_idle_hours_and_phases_of_a_workload():
    (one, _) = advice_of(founding()).workloads
    e = one.energy
    assert e.joules_per_token == pytest.approx(0.5) and e.tokens_per_second_per_watt == pytest.approx(2.0)
    assert e.kwh_per_busy_gpu_hour == pytest.approx(0.3) and e.idle_kwh == 0
    assert [(p.phase, p.cost_usd) for p in e.phases] == [("decode", pytest.approx(one.cost_usd))]
    held = verdicts([node()], [workload("left", ("n1",))], idle_hours={"w-left": 8 * 24.0})
    (one,) = advice_of(drawing(held, 100.0)).workloads
    assert one.energy.idle_kwh == pytest.approx(8 * 24 * 0.1)
    assert {p.phase for p in one.energy.phases} == {"idle", "decode"} and one.energy.joules_per_token is None
