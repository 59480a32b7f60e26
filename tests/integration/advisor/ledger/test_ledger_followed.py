"""A service that moves, through the real store: the ledger from proposed to done, and its prices from an export."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.advisor.demo.skus import H100_ETHERNET, H100_IB
from skuwise.benchmarks.generators.first import simulate
from skuwise.rules.catalog.price_files import load_prices

BEFORE, AFTER = "2026-11-08T12:00:00Z", "2026-11-12T00:00:00Z"
SAVING = 2 * (98.32 - 88.488) * 730


@pytest.mark.slow
def test_a_move_is_followed_through_the_store_and_held_against_what_was_charged(tmp_path: Path, capsys) -> None:
    fleet, ledger, bill, prices = (tmp_path / name for name in ("fleet", "ledger.db", "bill.csv", "prices.yaml"))

    def run(*arguments: object) -> str:
        capsys.readouterr()
        assert main([str(one) for one in arguments]) == 0
        return capsys.readouterr().out

    def listed(*options: str) -> list[dict]:
        told = run("ledger", "list", "--all", "--format", "json", "--ledger", ledger, *options)
        return json.loads(told)["recommendations"]

    fleet.mkdir()
    run("simulate", "founding", "--db", fleet / "before.db", "--days", "1.5", "--seed", "5", "--until", BEFORE)
    run("advise", "--db", fleet, "--ledger", ledger)
    (move,) = [r for r in listed() if r["action"] == "move-sku" and not r["blocked"]]
    run("ledger", "accept", move["id"], "--ledger", ledger)

    simulate("moved", fleet / "after.db", days=3.5, seed=5, until=parse_moment(AFTER))
    advice = json.loads(run("advise", "--db", fleet, "--ledger", ledger, "--format", "json"))
    assert not [r for r in advice["recommendations"] if r["workload"] and r["from"]["node_sku"] == H100_IB]
    assert any(note["fields"].get("ended") == "moved to other nodes" for note in advice["notes"])
    (done,) = listed("--state", "done")
    assert (done["id"], done["realised"]["since"]) == (move["id"], BEFORE)
    assert done["predicted"]["saving_usd_per_month"]["p50"] == pytest.approx(SAVING, rel=1e-3)
    assert done["realised"]["saving_usd_per_month"] == pytest.approx(SAVING, rel=1e-3)
    assert done["realised"]["load_ratio"] == pytest.approx(1.0, abs=0.25)

    start, end = "2026-11-09T00:00:00Z", "2026-11-12T00:00:00Z"
    heads = ("BilledCost", "EffectiveCost", "ListCost", "BillingCurrency", "ChargeCategory", "ChargePeriodStart",
             "ChargePeriodEnd", "ResourceId", "RegionId", "ServiceName", "SkuMeter", "ConsumedQuantity",
             "ConsumedUnit")  # fmt: skip
    meter = H100_ETHERNET.rpartition("/")[2]
    region = next(n["region"] for n in advice["prices"] if n["sku"] == H100_ETHERNET)
    rows = [
        (72 * 80, 72 * 80, 72 * 88.488, "USD", "Usage", start, end, f"vm/{name}", region, "VM", meter, 72, "Hours")
        for name in ("plain-01", "plain-02", "elsewhere")
    ]  # fmt: skip
    with bill.open("w", newline="") as file:
        csv.writer(file).writerows([heads, *rows])
    told = json.loads(run("prices", "import", bill, "--db", fleet, "--output", prices, "--format", "json"))
    (node,) = told["nodes"]
    assert (node["sku"], node["observed_node_hours"]) == (H100_ETHERNET, pytest.approx(2 * 72, abs=0.1))
    assert node["named"] == ["plain-01", "plain-02"]
    assert node["explained_usd"] == pytest.approx(2 * 72 * 80, abs=10)
    assert told["unexplained"][0]["usd"] == pytest.approx(72 * 80, abs=10)
    assert load_prices(prices).prices[0].usd_per_hour == pytest.approx(80.0)
