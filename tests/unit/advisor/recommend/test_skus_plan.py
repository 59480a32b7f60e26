"""`skuwise skus plan`: memory, counts, fabrics, and refusals in a sentence."""

import json
from dataclasses import replace

import pytest
from skuwise.__main__ import main
from skuwise.advisor.recommend.constraints import room_bytes
from skuwise.advisor.recommend.predict.capacity_plan import Wanted, plan_serving, plan_training
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.models.move_model import load_move_model


def skus(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str, str]:
    """Status, stdout and stderr of `skuwise skus` with these words."""
    try:
        status = main(["skus", *words])
    except SystemExit as stopped:
        status = stopped.code
    told = capsys.readouterr()
    return status, told.out, told.err


CATALOG = load_catalog()
MODEL = load_move_model()
LLAMA = Wanted(70e9, None, "fp8", "bf16", input_tokens=7680, output_tokens=512)


def nodes(**wanted):
    return [n for n in CATALOG.nodes.values() if all(getattr(n, k) == v for k, v in wanted.items())]


def training(wanted=LLAMA, **which):
    return plan_training(wanted, CATALOG, MODEL, nodes(**which))


def serving(wanted=LLAMA, **which):
    return plan_serving(wanted, CATALOG, MODEL, nodes(**which))


def test_states_of_training_are_sixteen_bytes_a_parameter_over_all_gpus():
    for plan in training():
        assert plan.memory.parts["states"] * plan.gpus == pytest.approx(16 * 70e9)
        assert plan.memory.needed <= plan.memory.room == room_bytes(plan.offer.gpu.mem_bytes)


def test_training_across_nodes_has_an_rdma_fabric_and_serving_pays_for_none():
    spanning = [p for p in training() if p.needs_fabric]
    assert spanning
    assert all(p.offer.node.fabric.rdma for p in spanning)
    served = serving(replace(LLAMA, load_requests=20.0))[0]
    assert not served.needs_fabric
    assert served.usd_per_hour <= min(p.usd_per_hour for p in serving(replace(LLAMA, load_requests=20.0)))


def test_weights_and_cache_fit_and_no_four_gpus_serve_over_pcie():
    for plan in serving():
        assert plan.memory.parts["weights"] * plan.group_gpus == pytest.approx(70e9)
        assert plan.memory.needed <= plan.memory.room
        if plan.group_gpus >= 4:
            assert plan.offer.node.intra_node_link in ("nvswitch", "nvlink-bridge")


def test_more_load_takes_more_replicas_and_two_at_least():
    few, many = serving(replace(LLAMA, load_requests=0.01))[0], serving(replace(LLAMA, load_requests=50.0))[0]
    assert few.figures["replicas"] == 2
    assert many.figures["requests_per_second"] >= 50 / 0.7 > 50
    assert many.usd_per_hour > few.usd_per_hour


def test_json_holds_both_configurations_with_prices_and_their_dates(capsys):
    status, out, _ = skus(capsys, "plan", "--params", "70B", "--precision", "fp8", "--load", "5rps", "--format", "json")
    document = json.loads(out)
    assert status == 0
    assert document["schema"] == "skuwise.plan/1"
    for part in ("training", "serving"):
        best = document[part][0]
        assert best["usd_per_hour"] == pytest.approx(best["nodes"] * best["price"]["usd_per_hour"])
        assert best["price"]["as_of"]
        assert best["price"]["source"]
        assert best["memory_bytes_per_gpu"]["needed"] <= best["memory_bytes_per_gpu"]["room"]


def test_json_has_the_agreed_shape(capsys):
    status, out, _ = skus(
        capsys, "compare", "H100-SXM5", "L40S", "--phase", "decode", "--precision", "fp8", "--params", "13B",
        "--format", "json",
    )  # fmt: skip
    document = json.loads(out)
    assert status == 0
    assert list(document) == [
        "from",
        "to",
        "phase",
        "precision",
        "time_ratio",
        "blocked_by",
        "basis",
        "speedup",
        "outside",
    ]
    assert list(document["time_ratio"]) == ["p10", "p50", "p90"]
    assert document["time_ratio"]["p50"] > 3


def test_a_batch_is_answered_by_the_token_and_says_what_lies_outside(capsys):
    words = ("H100", "H200-SXM", "--phase", "decode", "--precision", "fp8", "--params", "5000B", "--gpus", "64")
    status, out, _ = skus(capsys, "compare", *words, "--batch", "9999", "--attention-copies", "2",
                          "--cache-precision", "bf16")  # fmt: skip
    assert status == 0
    assert "for each token" in out
    assert "not 5,000 B" in out
    assert "outside what was measured" in out
    assert "times as many tokens a second" in out
    status, out, _ = skus(capsys, "compare", *words, "--batch", "9999", "--format", "json")
    document = json.loads(out)
    assert {"size-not-calibrated", "batch-not-calibrated"} <= {one["code"] for one in document["outside"]}
    assert document["speedup"] > 1  # more sequences in flight, though each of them waits longer


def test_the_table_says_the_basis_and_what_forbids(capsys):
    status, out, _ = skus(capsys, "compare", "H100", "L40S", "--phase", "decode", "--precision", "fp8", "--params",
                         "70B", "--gpus", "4")  # fmt: skip
    assert status == 0
    assert "basis" in out
    assert "only PCIe" in out


def document(capsys, *words):
    status, out, _ = skus(capsys, "compare", *words, "--format", "json")
    assert status == 0
    return json.loads(out)


def test_a_cap_is_answered_with_time_watts_and_joules(capsys):
    found = document(capsys, "H100", "H100", "--power-limit", "500W", "--phase", "prefill", "--power-at-work", "650")
    assert list(found)[:7] == ["from", "to", "phase", "precision", "time_ratio", "blocked_by", "basis"]
    assert 1.0 < found["time_ratio"]["p50"] < 1.2
    assert found["watts"]["before"] == 650
    assert found["watts"]["after"] < 500
    assert found["watts"]["measured"]
    assert found["joules_ratio"]["p50"] < 1
    assert found["joules_a_unit"]["unit"] == "request"
    ratio = found["joules_a_unit"]["after"] / found["joules_a_unit"]["before"]
    assert ratio == pytest.approx(found["joules_ratio"]["p50"])
    assert found["power_limit_watts"] == 500
    assert found["blocked_by"] == []
    assert "none on Hopper" in found["basis"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("plan",), "--params"),
        (("plan", "--params", "0"), "not an amount"),
        (("plan", "--params", "7B", "--active-params", "9B"), "larger than --params"),
        (("plan", "--params", "7B", "--load", "many"), "no rate"),
        (("plan", "--params", "7B", "--load", "0rps"), "no rate"),
        (("plan", "--params", "7B", "--latency", "soon"), "not a span of time"),
        (("plan", "--params", "7B", "--context", "100000000"), "longer than any"),
        (("plan", "--params", "7B", "--context", "8", "--output-tokens", "8"), "no room for a prompt"),
        (("plan", "--params", "7B", "--train-time", "3d"), "needs --train-tokens"),
        (("plan", "--params", "7B", "--provider", "nobody"), "no provider"),
        (("plan", "--params", "7B", "--gpu", "H999"), "no GPU"),
        (("compare", "H100", "H999"), "no GPU 'H999'"),
        (("compare", "H100", "L40S", "--active-params", "13B"), "needs --params"),
        (("compare", "H100", "L40S", "--params", "7B", "--active-params", "13B"), "larger than --params"),
        (("compare", "H100", "L40S", "--params", "-3"), "not an amount"),
        (("compare", "H100", "L40S", "--params", "1e99"), "not an amount"),
        (("compare", "H100", "L40S", "--batch", "0"), "above zero"),
        (("compare", "H100", "L40S", "--precision", "fp7"), "Invalid value"),
        (("compare", "H100", "H100", "--power-limit", "150"), "outside the 200 to 700 W"),
        (("compare", "H100", "H100", "--power-limit", "701W"), "outside the 200 to 700 W"),
        (("compare", "H100", "H100", "--power-limit", "210"), "the lowest cap with measurements"),
        (("compare", "B200-SXM", "B200-SXM", "--power-limit", "300"), "Ask for 333 to 1000 W"),
        (("compare", "H100", "H100", "--power-limit", "0"), "not a power"),
        (("compare", "H100", "H100", "--power-limit", "-5"), "not a power"),
        (("compare", "H100", "H100", "--power-limit", "nan"), "not a power"),
        (("compare", "H100", "H100", "--power-limit", "5e2"), "not a power"),
        (("compare", "H100", "L40S", "--power-limit", "300"), "are two"),
        (("compare", "H100", "L40S", "--sm-clock", "1110MHz"), "are two"),
        (("compare", "H100", "H100", "--sm-clock", "1110"), "not a clock"),
        (("compare", "H100", "H100", "--sm-clock", "500MHz"), "outside the 990 to 1980 MHz"),
        (("compare", "H100", "H100", "--sm-clock", "1110MHz", "--power-limit", "500"), "not allowed with"),
        (("compare", "H100", "H100", "--power-at-work", "500"), "needs --power-limit or --sm-clock"),
        (("compare", "H100", "H100", "--power-limit", "500", "--power-at-work", "900"), "at most 700 W"),
        (("compare", "H100", "H100", "--power-limit", "500", "--power-at-work", "20"), "at rest"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(capsys, words, told):
    status, out, err = skus(capsys, *words)
    assert (status, out) == (2, "")
    assert told in err
    assert "Traceback" not in err
