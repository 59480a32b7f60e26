"""Showback's formats: FOCUS' columns against the specification, CSV, JSON and the table."""

import csv
import io
import itertools
import json
import re

import pytest
from skuwise.advisor.billing.billing_exports import Export
from skuwise.advisor.billing.cost_summary import sum_up
from skuwise.advisor.billing.focus_rows import focus_rows
from skuwise.advisor.billing.showback import Showback
from skuwise.advisor.billing.showback_output import showback_csv, showback_document, showback_json, showback_json_text
from skuwise.advisor.billing.showback_sums import BY
from skuwise.advisor.render.text import document_text
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.support.schemas import schema, validate
from skuwise.tests.support.showback_fleets import SKU, known, price, split, with_tokens

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
    return split(
        frame, price(sku="azure/Standard_ND96is_H100_v5"), whose=lambda w: "team a" if w.name != "held" else None
    )


def test_values_are_what_the_specification_allows(listed: Showback) -> None:
    rows = list(focus_rows(listed, None))
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


def test_csv_is_read_back_by_our_own_reader(listed: Showback, tmp_path) -> None:
    file = tmp_path / "showback.csv"
    file.write_text(showback_csv(listed, "acct-1"), "utf-8", newline="")
    bill = sum_up(Export(file).charges(), load_catalog())
    assert bill.effective == pytest.approx(listed.rows["usd"].sum(), abs=1e-6) and bill.billed == 0
    (line,) = bill.lines.values()
    assert line.sku == SKU and line.hours == pytest.approx(sum(node.hours for node in listed.nodes), abs=1e-4)


def test_a_row_tells_tokens_and_their_cost(listed: Showback) -> None:
    rows = [row for row in focus_rows(listed, None) if row["x_Tokens"] is not None]
    made, cost = (sum(row[name] for row in rows) for name in ("x_Tokens", "x_TokenCost"))
    assert made == pytest.approx(48e6) and cost == pytest.approx(48 * 98.32 / 2, abs=1e-4)
    assert all(row["x_UsdPerMillionTokens"] == pytest.approx(98.32 / 2, abs=1e-5) for row in rows)


@pytest.mark.parametrize("name", ["=cmd|'/c calc'!A1", "a\x1b[31mred\nline\ud800 half"])
def test_hostile_names_are_harmless_in_every_format(name: str) -> None:
    builder = known(namespace=name, account=name)
    builder.workloads[0]["name"] = name
    showback = split(builder.frame(), whose=lambda w: name)
    for cell in itertools.chain(*csv.reader(io.StringIO(showback_csv(showback, name)))):
        assert not cell.lstrip(" \"'").startswith(("=", "+", "@")) or cell.startswith("'")
        assert cell.isprintable()
    for by in BY:
        page = document_text(showback_document(showback, by))
        assert all(line.isprintable() for line in page.split("\n"))
        validate(showback_json(showback, by, name), "showback")
    assert showback_json_text(showback, "team", None).isascii()
