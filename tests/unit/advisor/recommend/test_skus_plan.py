"""`skuwise skus plan`: memory, counts, fabrics, and refusals in a sentence."""

import json
from dataclasses import replace

import pytest
from skuwise.__main__ import main
from skuwise.advisor.recommend.constraints import room_bytes
from skuwise.advisor.recommend.predict.capacity_plan import Wanted, plan_serving, plan_training
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.models.move_model import load_move_model


def skus(capsys: pytest.CaptureFixture[str], words: str) -> tuple[object, str, str]:
    """Status, stdout and stderr of `skuwise skus` with these words."""
    try:
        status = main(["skus", *words.split()])
    except SystemExit as stopped:
        status = stopped.code
    told = capsys.readouterr()
    return status, told.out, told.err


CATALOG = load_catalog()
MODEL = load_move_model()
LLAMA = Wanted(70e9, None, "fp8", "bf16", input_tokens=7680, output_tokens=512)


def training():
    return plan_training(LLAMA, CATALOG, MODEL, CATALOG.nodes.values())


def serving(**changes):
    return plan_serving(replace(LLAMA, **changes), CATALOG, MODEL, CATALOG.nodes.values())


def test_memory_of_training_and_serving_fits_the_gpus_and_four_do_not_serve_over_pcie():
    for plan in (*training(), *serving()):
        assert plan.needed <= plan.room == room_bytes(plan.gpu.mem_bytes)
    for plan in training():  # states are sixteen bytes a parameter, over all GPUs
        assert plan.memory["states"] * plan.gpus == pytest.approx(16 * 70e9)
    for plan in serving():
        assert plan.memory["weights"] * plan.group_gpus == pytest.approx(70e9)
        assert plan.group_gpus < 4 or plan.node.intra_node_link in ("nvswitch", "nvlink-bridge")


def test_training_across_nodes_has_an_rdma_fabric_and_serving_pays_for_none():
    spanning = [p for p in training() if p.needs_fabric]
    assert spanning and all(p.node.fabric.rdma for p in spanning)
    served = serving(load_requests=20.0)
    assert not served[0].needs_fabric and served[0].usd_per_hour == min(p.usd_per_hour for p in served)


def test_more_load_takes_more_replicas_and_two_at_least():
    few, many = serving(load_requests=0.01)[0], serving(load_requests=50.0)[0]
    assert few.figures["replicas"] == 2
    assert many.figures["requests_per_second"] >= 50 / 0.7 > 50
    assert many.usd_per_hour > few.usd_per_hour


def document(capsys, words):
    return json.loads(skus(capsys, f"{words} --format json")[1])


def test_json_holds_both_configurations_with_prices_and_their_dates(capsys):
    told = document(capsys, "plan --params 70B --precision fp8 --load 5rps")
    assert told["schema"] == "skuwise.plan/1"
    for best in (told["training"][0], told["serving"][0]):
        assert best["usd_per_hour"] == pytest.approx(best["nodes"] * best["price"]["usd_per_hour"])
        assert best["price"]["as_of"] and best["price"]["source"]
        assert best["memory_bytes_per_gpu"]["needed"] <= best["memory_bytes_per_gpu"]["room"]


HEAD = ["from", "to", "phase", "precision", "time_ratio", "blocked_by", "basis"]


def test_json_of_a_comparison_has_the_agreed_shape(capsys):
    told = document(capsys, "compare H100-SXM5 L40S --phase decode --precision fp8 --params 13B")
    assert list(told) == [*HEAD, "speedup", "outside"]
    assert list(told["time_ratio"]) == ["p10", "p50", "p90"]
    assert told["time_ratio"]["p50"] > 3


HUGE = "compare H100 H200-SXM --phase decode --precision fp8 --params 5000B --gpus 64 --batch 9999"
PARTS = "--attention-copies 2 --cache-precision bf16"
WHOLE = "compare H100 L40S --phase decode --precision fp8 --params 70B --gpus 4"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"{HUGE} {PARTS}", ("for each token", "not 5,000 B", "times as many tokens a second")),
        (WHOLE, ("basis", "only PCIe")),
    ],
)
def test_the_table_says_the_basis_and_what_forbids_or_lies_outside(capsys, words, said):
    status, out, _ = skus(capsys, words)
    assert status == 0 and all(one in out for one in said)


def test_a_batch_is_answered_by_the_token_and_says_what_lies_outside(capsys):
    told = document(capsys, HUGE)
    assert {"size-not-calibrated", "batch-not-calibrated"} <= {one["code"] for one in told["outside"]}
    assert told["speedup"] > 1  # more sequences in flight, though each of them waits longer


def test_a_cap_is_answered_with_time_watts_and_joules(capsys):
    told = document(capsys, "compare H100 H100 --power-limit 500W --phase prefill --power-at-work 650")
    assert list(told)[:7] == HEAD
    assert 1.0 < told["time_ratio"]["p50"] < 1.2
    assert (told["watts"]["before"], told["watts"]["measured"], told["power_limit_watts"]) == (650, True, 500)
    assert told["watts"]["after"] < 500
    joules, ratio = told["joules_a_unit"], told["joules_ratio"]["p50"]
    assert joules["unit"] == "request" and joules["after"] / joules["before"] == pytest.approx(ratio)
    assert ratio < 1 and told["blocked_by"] == [] and "none on Hopper" in told["basis"]


COMPARE, SELF, PLAN = "compare H100 L40S", "compare H100 H100", "plan --params 7B"
BAD = {
    "--params": ["plan"],
    "not an amount": ["plan --params 0", f"{COMPARE} --params -3", f"{COMPARE} --params 1e99"],
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
    "not a power": [f"{SELF} --power-limit {watts}" for watts in ("0", "-5", "nan", "5e2")],
    "are two": [f"{COMPARE} --power-limit 300", f"{COMPARE} --sm-clock 1110MHz"],
    "not a clock": [f"{SELF} --sm-clock 1110"],
    "outside the 990 to 1980 MHz": [f"{SELF} --sm-clock 500MHz"],
    "not allowed with": [f"{SELF} --sm-clock 1110MHz --power-limit 500"],
    "needs --power-limit or --sm-clock": [f"{SELF} --power-at-work 500"],
    "at most 700 W": [f"{SELF} --power-limit 500 --power-at-work 900"],
    "at rest": [f"{SELF} --power-limit 500 --power-at-work 20"],
}


@pytest.mark.parametrize(("words", "told"), [(words, told) for told, several in BAD.items() for words in several])
def test_bad_input_is_refused_in_a_sentence(capsys, words, told):
    status, out, err = skus(capsys, words)
    assert (status, out) == (2, "") and told in err and "Traceback" not in err
