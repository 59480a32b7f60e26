# pyright: reportOperatorIssue=false, reportCallIssue=false, reportArgumentType=false
"""Showback sums to the nodes' price x hours whatever the fleet; its files are FOCUS, and harmless."""

import csv
import io
import itertools
import json
import re
from pathlib import Path

import pandas as pd
import pytest
from skuwise.__main__ import main
from skuwise.advisor.billing import showback_page
from skuwise.advisor.billing.bill import Export, sum_up
from skuwise.advisor.billing.showback import Showback
from skuwise.advisor.classify.accounting.energy import hours_by_use
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.recommend.pricing import PriceBook, reconcile
from skuwise.advisor.show.writers.text import document_text
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.support.frame_builder import DECODE, FREE, HOUR, START, FrameBuilder
from skuwise.tests.support.rulebooks import rulebook
from skuwise.tests.support.schemas import schema, validate
from skuwise.tests.support.showback_fleets import RATE, SKU, known, price, random_fleet, split, with_tokens

DAY = 86400.0


@pytest.mark.parametrize(("util", "used"), [(0.4, True), (0.0, False), (None, None)])
def test_a_node_with_known_hours_is_split_by_them(util, used) -> None:
    showback = split(known(fabric=util).frame())
    whole, (node,) = showback_page.sums_of(showback.rows), showback.nodes.to_dict("records")
    cost = whole["cost_usd_by_category"]
    # Half of the node's GPU-hours are used, and the premium is taken out of those alone.
    assert node["fabric_used"] is used and 0 < node["fabric_usd_per_hour"] < RATE
    assert cost["fabric_premium"] == pytest.approx(node["fabric_usd_per_hour"] * 48 / 2, abs=1e-4)
    assert cost["used"] + cost["fabric_premium"] == pytest.approx(4 * 48 * 10, abs=1e-5)
    assert cost["held_idle"] == cost["unallocated"] == pytest.approx(960.0)
    assert whole["gpu_hours_by_category"] == {"used": 192.0, "held_idle": 96.0, "unallocated": 96.0}
    assert whole["cost_usd"] == pytest.approx(80 * 48)


def test_nodes_that_were_there_for_hours_cost_these_hours_and_are_named() -> None:
    b = FrameBuilder(hours=24 * 14)
    for day in range(14):
        for uuid in b.node(f"spot-{day}", gpus=8, first_seen=START + day * DAY):
            b.use(DECODE, f"spot-{day}", uuid, start=day * 24, end=day * 24 + 8)
        b.nodes[-1]["last_seen"] = START + day * DAY + 8 * HOUR
    (stays,) = b.node("stays")
    b.use(DECODE, "stays", stays)
    showback = split(b.frame())
    nodes = showback.nodes
    names = set(nodes.loc[(nodes["hours"] == 8.0) & (nodes["end"] == nodes["start"] + 8 * HOUR), "node"])
    assert names == {f"spot-{day}" for day in range(14)}
    rows = showback.rows[showback.rows["node"].isin(names)]
    assert "unobserved" not in set(rows["category"])
    assert rows["usd"].sum() == pytest.approx(14 * 8 * RATE)
    (note,) = [n for n in showback.notes if n.code == "nodes-that-left"]
    assert set(str(note.fields["nodes"]).split(", ")) == names


@pytest.mark.parametrize("number", range(6))
def test_whatever_the_fleet_the_parts_sum_to_price_times_hours(number, seed_of) -> None:
    frame, prices = random_fleet(seed_of(number))
    showback = split(frame, *prices)
    assert showback_page.node_checks(showback)["closes"].all()
    for node in showback.nodes.itertuples():
        rows = showback.rows[showback.rows["node"] == node.node]
        start, end = rows["start"], rows["end"]
        assert rows["gpu_hours"].sum() == pytest.approx(node.gpu_count * node.hours, abs=2e-6)
        assert rows["usd"].notna().sum() == (len(rows) if node.price is not None else 0)
        assert rows["usd"].sum() == pytest.approx(node.usd or 0.0, abs=2e-6)
        assert (rows[["gpu_hours", "node_hours", "usd"]].fillna(0.0) >= 0).all(axis=None)
        assert ((node.start <= start) & (start < end) & (end <= node.end) & (start // DAY == (end - 1e-3) // DAY)).all()
        of_day = rows.groupby("start")["gpu_hours"].transform("sum").to_numpy()
        assert of_day == pytest.approx((node.gpu_count * (end - start) / 3600).to_numpy(), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("number", range(3))
def test_whatever_the_fleet_it_agrees_with_the_reconciliation_of_the_advice(number, seed_of) -> None:
    frame, prices = random_fleet(seed_of(100 + number))
    book = rulebook(prices=prices)
    verdicts = judge(frame, book)
    advice = reconcile(verdicts, PriceBook(book.catalog, tuple(book.team.prices), book.power, book.hourly))
    hours = hours_by_use(verdicts.occupancy)
    whole = showback_page.sums_of(split(frame, *prices).rows)
    assert (advice.total is None) == (whole["cost_usd"] is None)
    usd, gpu_hours = whole["cost_usd_by_category"], whole["gpu_hours_by_category"]
    if usd:
        usd["used"] = usd.get("used", 0.0) + usd.get("fabric_premium", 0.0)
    names = {"used": "workloads", "held_idle": "allocated_idle", "shared_pool": "shared"}
    for category in ("used", "held_idle", "shared_pool", "unallocated", "unobserved"):
        name = names.get(category, category)
        if usd:
            assert usd.get(category, 0.0) == pytest.approx(getattr(advice, name), abs=1e-4)
        if name != "unallocated":
            assert gpu_hours.get(category, 0.0) == pytest.approx(getattr(hours, name), abs=1e-4)


def test_without_a_price_there_are_hours_and_no_cost() -> None:
    builder = FrameBuilder(hours=30)
    builder.use(FREE, "lone", *builder.node("lone"))
    showback = split(builder.frame())
    whole = showback_page.sums_of(showback.rows)
    assert whole["cost_usd"] is None and whole["gpu_hours"] == whole["unpriced_gpu_hours"] == 30
    notes = {note.code: note for note in showback.notes}
    assert "lone" in notes["showback-without-price"].text and "prices-missing" in notes
    assert showback_page.node_checks(showback)["closes"].all()
    assert "GPU-hours by category" in document_text(showback_page.showback_document(showback, "team"))


@pytest.mark.parametrize(
    ("hours", "seconds", "per_million", "code"),
    [
        # 10 hours of tokens; the other 38 hours of the workload cost nothing per token.
        (range(20, 30), HOUR, 4 * RATE / 8 / 3.6, None), (range(0), HOUR, None, "token-cost-not-reported"),
        (range(3), 600.0, None, "token-cost-too-rare"),
    ],
)  # fmt: skip
def test_a_dollar_per_million_tokens_is_of_the_hours_that_have_both(hours, seconds, per_million, code) -> None:
    frame = with_tokens(known().frame(), "w-train", 3.6e6, hours=hours)
    frame.tokens["seconds"] = seconds
    (group,) = [g for g in showback_page.groups_of(split(frame), "workload") if g["name"] == "train"]
    assert group["tokens"] == (pytest.approx(3.6e7) if per_million else None)
    assert group["usd_per_million_tokens"] == (pytest.approx(per_million) if per_million else None)
    assert (group["tokens_unknown"] or {}).get("code") == code


def test_groups_are_by_the_requested_key_and_the_unnamed_come_last() -> None:
    showback = split(known(account="acc").frame(), team_of=lambda w: None)
    for by, names in {"namespace": ["lab", None], "account": ["acc", None], "workload": ["train", "held"]}.items():
        assert [group["name"] for group in showback_page.groups_of(showback, by)] == names
    unowned = showback_page.unowned_of(showback)
    assert set(unowned) == {"unallocated"}
    parts = [g["cost_usd"] for g in (*showback_page.groups_of(showback, "team"), *unowned.values())]
    assert sum(parts) == pytest.approx(showback_page.sums_of(showback.rows)["cost_usd"])


@pytest.mark.parametrize(
    ("owner", "team", "name"),
    [
        ({"namespace": "zoo", "user": "ann"}, "t", "t"), ({"namespace": "zoo", "user": "ann"}, "", "zoo"),
        ({"account": "acc", "user": "ann"}, "", "acc"), ({"user": "ann"}, "", "ann"), ({}, "", None),
    ],
)  # fmt: skip
def test_work_without_a_team_is_its_owners_as_in_the_advice(owner, team, name) -> None:
    builder = known()
    builder.workloads[0] |= owner
    showback = split(builder.frame(), team_of=lambda w: team if w.name == "train" else "other")
    groups = {g["name"]: g["cost_usd"] for g in showback_page.groups_of(showback, "team")}
    assert set(groups) == {name, "other"} and groups[name] == pytest.approx(4 * 48 * RATE / 8)


def written(fleet: Path, file: Path, form: str, *more: str) -> Path:
    assert main(["showback", "--db", str(fleet), "--format", form, "--output", str(file), *more]) == 0
    return file


def test_all_formats_are_equal_and_agree_with_the_advice(founding: Path, tmp_path: Path, capsys) -> None:
    table = pd.read_csv(written(founding, tmp_path / "a.csv", "csv"))
    validate(document := json.loads(written(founding, tmp_path / "a.json", "json").read_text("utf-8")), "showback")
    assert main(["advise", "--db", str(founding), "--format", "json", "--no-ledger"]) == 0
    advice = json.loads(capsys.readouterr().out)
    sums = [rows.groupby("x_Category")["EffectiveCost"].sum() for rows in (table, pd.DataFrame(document["rows"]))]
    assert sums[0].to_dict() == pytest.approx(sums[1].to_dict(), abs=1e-4)
    assert sums[0].sum() == pytest.approx(advice["summary"]["reconciliation"]["total"], abs=1e-3)
    assert abs(document["reconciliation"]["difference_usd"]) < 1e-3
    of_each = table.groupby("x_WorkloadId")["EffectiveCost"].sum().to_dict()
    costs = {w["id"]: w["cost_usd"] for w in advice["workloads"] if w["id"] in of_each}
    assert of_each == pytest.approx(costs, abs=1e-3)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_rows_that_do_not_sum_replace_no_file_and_json_has_them(founding, tmp_path, monkeypatch, form) -> None:
    file = tmp_path / "last"
    file.write_text("good", "utf-8")
    monkeypatch.setattr(showback_page, "TOLERANCE", -1.0)
    assert main(["showback", "--db", str(founding), "--format", form, "--output", str(file)]) == 1
    assert (file.read_bytes() == b"good") == (form != "json")


def test_a_price_and_an_account_that_are_typed(founding: Path, tmp_path: Path) -> None:
    options = ["--gpu-hour-usd", "H100-SXM5=2.5", "--billing-account", "=1+1"]
    rows = pd.read_csv(written(founding, tmp_path / "a.csv", "csv", *options))
    h100 = rows[rows["x_GpuSku"] == "H100-SXM5"]
    assert set(h100["ContractedUnitPrice"]) == {20.0} and set(h100["x_PriceBasis"]) == {"negotiated"}
    assert set(rows["BillingAccountId"]) == {"'=1+1"}


COLUMNS = list(schema("showback")["$defs"]["row"]["properties"])
# Of the specification, data set Cost and Usage (focus.finops.org, read in November 2026).
NOT_NULL = {
    "BilledCost", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargePeriodEnd",
    "ChargePeriodStart", "ChargeFrequency", "ContractedCost", "EffectiveCost", "ListCost", "ServiceCategory",
    "ServiceName", "ServiceSubcategory", "PricingCategory", "ConsumedQuantity", "ConsumedUnit", "AllocatedMethodId",
    "PricingQuantity", "PricingUnit",
}  # fmt: skip
UNIT = re.compile(r"[A-Z][A-Za-z]*(-[A-Z][a-z]*)?s")


@pytest.fixture(scope="module")
def listed() -> Showback:
    """At list price, with tokens and an observed fabric."""
    frame = with_tokens(known(fabric=0.4, namespace="zoo").frame(), "w-train", 1e6, hours=range(48))
    frame.nodes["region"] = "eastus"
    frame.nodes["provider"] = "azure"
    plain = price(sku="azure/Standard_ND96is_H100_v5")
    return split(frame, plain, team_of=lambda w: "team a" if w.name != "held" else None)


def test_values_are_what_the_specification_allows(listed: Showback) -> None:
    rows = list(showback_page.focus_rows(listed, None))
    assert len(rows) > 8
    for row in rows:
        assert list(row) == COLUMNS
        assert not [name for name in NOT_NULL if row[name] is None]
        assert row["BilledCost"] == 0 and row["ChargeCategory"] == "Usage" and row["ChargeClass"] is None
        assert row["ChargeFrequency"] == "Usage-Based" and row["BillingCurrency"] == "USD"
        assert (row["ServiceCategory"], row["ServiceSubcategory"]) == ("Compute", "Virtual Machines")
        assert row["PricingCategory"] in ("Standard", "Dynamic", "Committed", "Other")
        assert UNIT.fullmatch(row["ConsumedUnit"]) and UNIT.fullmatch(row["PricingUnit"])
        start, end = row["ChargePeriodStart"], row["ChargePeriodEnd"]
        assert row["BillingPeriodStart"] <= start < end <= row["BillingPeriodEnd"]
        assert row["BillingPeriodStart"][8:10] == row["BillingPeriodEnd"][8:10] == "01"
        # Cost = unit price x quantity, to the rounding of the quantity.
        assert row["ContractedUnitPrice"] * row["PricingQuantity"] == pytest.approx(row["ContractedCost"], abs=1e-4)
        assert row["ListUnitPrice"] * row["PricingQuantity"] == pytest.approx(row["ListCost"], abs=1e-4)
        unowned = row["x_Category"] in ("shared-pool", "unallocated", "drained", "unobserved")
        assert (row["AllocatedResourceId"] is None) == unowned == (row["AllocatedTags"] is None)
        tags = json.loads(row["AllocatedTags"] or "{}")
        assert all(key.startswith("skuwise/") and isinstance(value, str) for key, value in tags.items())
    counted = [row for row in rows if row["x_Tokens"] is not None]
    tokens, cost = (sum(row[name] for row in counted) for name in ("x_Tokens", "x_TokenCost"))
    assert tokens == pytest.approx(48e6) and cost == pytest.approx(48 * 98.32 / 2, abs=1e-4)
    assert all(row["x_UsdPerMillionTokens"] == pytest.approx(98.32 / 2, abs=1e-5) for row in counted)


def test_csv_is_read_back_by_our_own_reader(listed: Showback, tmp_path) -> None:
    file = tmp_path / "showback.csv"
    file.write_text(showback_page.showback_csv(listed, "acct-1"), "utf-8", newline="")
    bill = sum_up(Export(file).charges(), load_catalog())
    assert bill.effective == pytest.approx(listed.rows["usd"].sum(), abs=1e-6) and bill.billed == 0
    (line,) = bill.lines.values()
    assert line.sku == SKU and line.hours == pytest.approx(listed.nodes["hours"].sum(), abs=1e-4)


@pytest.mark.parametrize("name", ["=cmd|'/c calc'!A1", "a\x1b[31mred\nline\ud800 half"])
def test_hostile_names_are_harmless_in_every_format(name: str) -> None:
    builder = known(namespace=name, account=name)
    builder.workloads[0]["name"] = name
    showback = split(builder.frame(), team_of=lambda w: name)
    for cell in itertools.chain(*csv.reader(io.StringIO(showback_page.showback_csv(showback, name)))):
        assert not cell.lstrip(" \"'").startswith(("=", "+", "@")) or cell.startswith("'")
        assert cell.isprintable()
    for by in showback_page.BY:
        page = document_text(showback_page.showback_document(showback, by))
        assert all(line.isprintable() for line in page.split("\n"))
        validate(showback_page.showback_json(showback, by, name), "showback")
