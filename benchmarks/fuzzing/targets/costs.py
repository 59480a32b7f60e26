"""Exports of charges, FOCUS and AWS' report, plain and packed: CSV."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections.abc import Sequence
from pathlib import Path

from ..lines import by_cells
from ..spoil import spoiled
from ..target import BrokenPromiseError, Mutator, Prepared, Seed, Target
from ..verdict import finite

_FOCUS = {
    "BilledCost": "2359.68", "EffectiveCost": "2359.68", "ListCost": "2359.68", "BillingCurrency": "USD",
    "ChargeCategory": "Usage", "ChargePeriodStart": "2026-09-01T00:00:00Z", "ChargePeriodEnd": "2026-09-02T00:00:00Z",
    "ResourceId": "/subscriptions/1/virtualMachines/n1", "RegionId": "eastus", "ServiceName": "Virtual Machines",
    "SkuPriceDetails": json.dumps({"InstanceType": "Standard_ND96isr_H100_v5"}), "CommitmentDiscountStatus": "",
    "ConsumedQuantity": "24", "ConsumedUnit": "Hours", "PricingCategory": "Standard",
}  # fmt: skip
_AWS = {
    "lineItem/LineItemType": "Usage", "lineItem/UnblendedCost": "2359.68", "lineItem/CurrencyCode": "USD",
    "lineItem/UsageStartDate": "2026-09-01T00:00:00Z", "lineItem/UsageEndDate": "2026-09-02T00:00:00Z",
    "lineItem/UsageAmount": "24", "pricing/unit": "Hrs", "pricing/publicOnDemandCost": "2359.68",
    "lineItem/ResourceId": "i-0abc", "lineItem/ProductCode": "AmazonEC2", "lineItem/UsageType": "BoxUsage:p5.48xlarge",
    "product/instanceType": "p5.48xlarge", "product/regionCode": "us-east-1", "savingsPlan/EndTime": "2027-01-01",
    "savingsPlan/SavingsPlanEffectiveCost": "10", "savingsPlan/TotalCommitmentToDate": "5",
    "savingsPlan/UsedCommitment": "4", "reservation/EffectiveCost": "3",
}  # fmt: skip


def _table(first: dict[str, str], changes: Sequence[dict[str, str]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(first))
    writer.writeheader()
    writer.writerows({**first, **change} for change in changes)
    return text.getvalue().encode()


def _packed(plain: Mutator) -> Mutator:
    """Of a packed file what is packed is spoiled as often as the packing."""

    def mutate(draw: random.Random, seed: Seed, seeds: Sequence[Seed]) -> bytes:
        if not seed.name.endswith(".gz"):
            return plain(draw, seed, seeds)
        if draw.random() < 0.5:
            return spoiled(draw, seed.data, seeds)
        inner = Seed(seed.name, gzip.decompress(seed.data))
        return gzip.compress(plain(draw, inner, [inner]), 1, mtime=0)

    return mutate


def _prepare(folder: Path) -> Prepared:
    from skuwise.advisor.billing.billing_exports import Export
    from skuwise.advisor.billing.cost_summary import compare_bill, sum_up
    from skuwise.advisor.cli.prices.import_export import _document, _text, price_file, remainder
    from skuwise.rules.catalog.loader import load_catalog
    from skuwise.rules.catalog.price_files import load_prices

    catalog = load_catalog()
    out = folder / "prices.yaml"

    def read(name: str, data: bytes) -> object:
        path = folder / name
        path.write_bytes(data)
        export = Export(path)
        bill = sum_up(export.charges(), catalog)
        found, without = compare_bill(bill, ())
        finite([remainder(bill, found, compared=False), found, without], "a bill")
        if bill.lines:  # without any, the command says so
            if not _text(export, bill, found, without, compared=False).replace("\n", "").isprintable():
                raise BrokenPromiseError("the table holds control characters")
            _document(export, bill, found, without, compared=False)
        prices = [p for one in found if (p := bill.price(one.line, "an export")) is not None]
        if prices:  # what is written is read back
            out.write_text(price_file(prices), encoding="utf-8")
            load_prices(out, catalog.nodes.keys())
        return bill

    focus = _table(_FOCUS, [{}, {"ChargeCategory": "Credit", "BilledCost": "-5"},
                            {"CommitmentDiscountStatus": "Unused"},
                            {"CommitmentDiscountStatus": "Used"}, {"PricingCategory": "Dynamic"}] * 3)  # fmt: skip
    aws = _table(_AWS, [{}] + [{"lineItem/LineItemType": kind} for kind in (
        "SavingsPlanCoveredUsage", "DiscountedUsage", "SavingsPlanRecurringFee", "RIFee", "SavingsPlanNegation", "Tax",
    )] * 2)  # fmt: skip
    seeds = [Seed("focus.csv", focus), Seed("aws.csv", aws), Seed("focus.csv.gz", gzip.compress(focus, 1, mtime=0))]
    words = (b"USD", b"EUR", b"Usage", b"Purchase", b"Hours", b"1000 Hours", b"Used", b"Unused", b"RIFee",
             b"2026-09-01T00:00Z", b"2026-09-01 00:00:00 UTC", b"0001-01-01T00:00:00Z", b"=1+1", b'"', b"1e12",
             b"9999-12-31", b"-1e12", b"10000-01-01T00:00:00Z", b"global", b"Standard_ND96isr_H100_v5")  # fmt: skip
    return Prepared(seeds, read, _packed(by_cells(b",", *words)))


FOCUS = Target("focus", "exports of charges, FOCUS and AWS, plain and gzip (advisor/costs)", _prepare)
