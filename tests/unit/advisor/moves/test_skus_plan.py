"""`skuwise skus plan`: memory, counts, fabrics, and refusals in a sentence."""

import json
from dataclasses import replace

import pytest
from skuwise.advisor.moves.base.constraints import room_bytes
from skuwise.advisor.moves.predict.capacity_plan import Wanted, plan_serving, plan_training
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.models.move_model import load_move_model
from skuwise.tests.support.in_process import skus

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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "--params"),
        (("--params", "0"), "not an amount"),
        (("--params", "7B", "--active-params", "9B"), "larger than --params"),
        (("--params", "7B", "--load", "many"), "no rate"),
        (("--params", "7B", "--load", "0rps"), "no rate"),
        (("--params", "7B", "--latency", "soon"), "not a span of time"),
        (("--params", "7B", "--context", "100000000"), "longer than any"),
        (("--params", "7B", "--context", "8", "--output-tokens", "8"), "no room for a prompt"),
        (("--params", "7B", "--train-time", "3d"), "needs --train-tokens"),
        (("--params", "7B", "--provider", "nobody"), "no provider"),
        (("--params", "7B", "--gpu", "H999"), "no GPU"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(capsys, words, told):
    status, _, err = skus(capsys, "plan", *words)
    assert status == 2
    assert told in err
    assert "Traceback" not in err
