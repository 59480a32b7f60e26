"""Exports of charges: FOCUS and AWS' report read row by row, prices that --prices reads, and an honest remainder."""

import csv
import gzip
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.__main__ import main
from skuwise.advisor.billing.bill import Bill, BillLine, Charge, Export, node_finder, price_entries, remainder, sum_up
from skuwise.rules.base.errors import UsageError
from skuwise.rules.catalog.price_files import load_prices
from skuwise.tests.support.moves_builders import IB, catalog

DAY = 86400.0
AT = 1_788_220_800.0  # 2026-09-01
UNUSED = "commitments that nothing used"
TYPE = "Standard_ND96isr_H100_v5"
FOCUS = {
    "BilledCost": "2359.68", "EffectiveCost": "2359.68", "ListCost": "2359.68", "BillingCurrency": "USD",
    "ChargeCategory": "Usage", "ChargePeriodStart": "2026-09-01T00:00:00Z", "ChargePeriodEnd": "2026-09-02T00:00:00Z",
    "ResourceId": "/subscriptions/1/virtualMachines/n1", "RegionId": "eastus", "ServiceName": "Virtual Machines",
    "SkuPriceDetails": json.dumps({"InstanceType": TYPE}), "CommitmentDiscountStatus": "", "ConsumedQuantity": "24",
    "ConsumedUnit": "Hours", "PricingCategory": "Standard",
}  # fmt: skip
AWS = {
    "lineItem/LineItemType": "Usage", "lineItem/UnblendedCost": "2359.68", "lineItem/CurrencyCode": "USD",
    "lineItem/UsageStartDate": "2026-09-01T00:00:00Z", "lineItem/UsageEndDate": "2026-09-02T00:00:00Z",
    "lineItem/UsageAmount": "24", "pricing/unit": "Hrs", "pricing/publicOnDemandCost": "2359.68",
    "lineItem/ResourceId": "i-0abc", "lineItem/ProductCode": "AmazonEC2", "lineItem/UsageType": "BoxUsage:p5.48xlarge",
    "product/instanceType": "p5.48xlarge", "product/regionCode": "us-east-1", "savingsPlan/EndTime": "",
    "savingsPlan/SavingsPlanEffectiveCost": "", "savingsPlan/TotalCommitmentToDate": "",
    "savingsPlan/UsedCommitment": "", "reservation/EffectiveCost": "",
}  # fmt: skip


def export(folder: Path, rows: Iterable[Mapping[str, str]], name: str = "bill.csv") -> Path:
    rows = list(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    path = folder / name
    data = text.getvalue().encode("utf-8", "surrogateescape")
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def read(path: Path) -> Bill:
    return sum_up(Export(path).charges(), catalog())


def only(bill: Bill) -> BillLine:
    (line,) = bill.lines.values()
    return line


def test_a_focus_export_gives_list_effective_and_committed_price_of_a_node_and_region(tmp_path: Path) -> None:
    rows = [
        FOCUS,
        FOCUS | {"EffectiveCost": "1400", "BilledCost": "0", "CommitmentDiscountStatus": "Used"},
        FOCUS | {"EffectiveCost": "33", "BilledCost": "0", "CommitmentDiscountStatus": "Unused"},
        FOCUS | {"ChargeCategory": "Purchase", "BilledCost": "30000", "EffectiveCost": "0", "SkuPriceDetails": "",
                 "ConsumedQuantity": "", "ServiceName": "Reservations"},
        FOCUS | {"SkuPriceDetails": "", "EffectiveCost": "12.5", "ServiceName": "Storage", "ConsumedUnit": "GB"},
    ]  # fmt: skip
    bill = read(export(tmp_path, rows))
    line = only(bill)
    assert (line.sku, line.region, line.hours) == (IB, "eastus", 48.0)
    assert line.rates == pytest.approx([98.32, (2359.68 + 1400) / 48, 1400 / 24])
    assert bill.other == {UNUSED: 33.0, "Reservations": 0.0, "Storage": 12.5}
    assert (bill.start, bill.end) == (AT, AT + DAY)


def test_an_aws_report_takes_what_each_kind_of_row_really_costs(tmp_path: Path) -> None:
    covered = {"lineItem/LineItemType": "SavingsPlanCoveredUsage", "savingsPlan/SavingsPlanEffectiveCost": "1300",
               "savingsPlan/EndTime": "2028-05-01T00:00:00.000Z"}  # fmt: skip
    rows = [
        AWS | covered,
        AWS | covered | {"savingsPlan/EndTime": "2027-05-01T00:00:00.000Z"},
        AWS,
        AWS | {"lineItem/LineItemType": "SavingsPlanNegation", "lineItem/UnblendedCost": "-4719.36"},
        AWS | {"lineItem/LineItemType": "SavingsPlanRecurringFee", "lineItem/UnblendedCost": "2700",
               "savingsPlan/TotalCommitmentToDate": "2700", "savingsPlan/UsedCommitment": "2600"},
        AWS | {"lineItem/LineItemType": "Tax", "lineItem/UnblendedCost": "7", "product/instanceType": "",
               "lineItem/UsageType": "", "lineItem/ProductCode": "Tax"},
    ]  # fmt: skip
    file = Export(export(tmp_path, rows, "cur.csv.gz"))
    bill = sum_up(file.charges(), catalog())
    line = only(bill)
    assert (line.sku, line.region, line.hours, line.committed_hours) == ("aws/p5.48xlarge", "us-east-1", 72.0, 48.0)
    assert line.effective == pytest.approx(2 * 1300 + 2359.68)
    assert (line.basis, line.ends) == ("committed", "2027-05-01") and bill.other[UNUSED] == pytest.approx(100.0)
    assert bill.billed == pytest.approx(3 * 2359.68 - 4719.36 + 2700 + 7)
    (price,) = price_entries(bill, file)
    assert (price["basis"], price["committed_until"], price["as_of"]) == ("committed", "2027-05-01", "2026-09-01")


@pytest.mark.parametrize("column", ["reservation/ReservationARN", "reservation_reservation_a_r_n"])
def test_the_upfront_fee_of_a_reservation_is_spread_over_what_it_covers(tmp_path: Path, column: str) -> None:
    """AWS lists the fee in the month of the purchase, and its part in the effective cost of each hour too."""
    reserved = {"product/instanceType": "", column: "arn:aws:ec2:us-east-1:1:reserved-instances/r"}
    fee = {"lineItem/LineItemType": "Fee", "lineItem/UnblendedCost": "300000", "lineItem/UsageType": "HeavyUsage:p5",
           "lineItem/UsageEndDate": "2029-09-01T00:00:00Z"}  # fmt: skip
    used = {"lineItem/LineItemType": "DiscountedUsage", "lineItem/UnblendedCost": "0", column: reserved[column],
            "reservation/EffectiveCost": "822"}  # fmt: skip
    other = {"lineItem/LineItemType": "Fee", "lineItem/UnblendedCost": "50", "product/instanceType": "", column: " "}
    bill = read(export(tmp_path, [AWS | fee | reserved, AWS | used, AWS | other]))
    assert (bill.effective, bill.billed) == (pytest.approx(822 + 50), pytest.approx(300_050))
    assert only(bill).effective == pytest.approx(822)
    assert bill.end - bill.start == DAY  # of the charges, not of the reservation's term


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ((TYPE,), IB), (("ND96isr H100 v5",), IB), (("USE1-BoxUsage:p5.48xlarge",), "aws/p5.48xlarge"),
        ((f'{{"ServiceType":"{TYPE}","VCPUs":96}}',), IB), (("", "m5.large", "a note on p5.48xlargest"), None),
        (("=HYPERLINK(p5.48xlarge)",), "aws/p5.48xlarge"), (("\x1b[31m\u202e",), None),
        (("NVIDIA H100 80GB GPU running in Americas",), None), (("H100",), "scaleway/H100"), ((), None),
    ],
)  # fmt: skip
def test_a_node_is_known_by_its_type_whatever_the_column_says_around_it(cells, expected) -> None:
    node = node_finder(catalog())(cells, "")
    assert (node.name if node else None) == expected


@pytest.mark.parametrize(
    ("row", "status", "said"),
    [
        (FOCUS | {"BillingCurrency": "EUR"}, 2, "row 2: unsupported currency 'EUR'"),
        ({"a": "1", "b": "2"}, 2, "neither a FOCUS export nor an AWS cost and usage report"),
        ({k: FOCUS[k] for k in FOCUS if k != "EffectiveCost"}, 2, "missing for a FOCUS export: EffectiveCost"),
        ({k: AWS[k] for k in AWS if k != "lineItem/UsageAmount"}, 2, "usage report: lineItem/UsageAmount"),
        (FOCUS | {"SkuPriceDetails": "Standard_D2s_v5"}, 3, "charges no GPU node that the catalog knows"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(tmp_path: Path, row, status, said, capsys) -> None:
    assert main(["prices", "import", str(export(tmp_path, [row]))]) == status
    output = capsys.readouterr().err
    assert said in output and len(output.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x00\x01\x02" * 99, b"PK\x03\x04rubbish", b"BilledCost\n" + b'"' + b"x" * (2 << 20),
        b"\xff\xfe,\n1,2\n", b"a," * (3 << 14), b'"a\n",' * (1 << 14),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["bill.csv", "bill.csv.gz"])
def test_what_is_no_export_is_refused_in_a_sentence(tmp_path: Path, content, name, capsys) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert main(["prices", "import", str(path)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "bad", [{"EffectiveCost": "nan"}, {"BilledCost": "1e400"}, {"ChargePeriodStart": "yesterday"},
            {"RegionId": "east\nus"}, {"ConsumedQuantity": "many"}],
)  # fmt: skip
def test_a_row_that_cannot_be_read_is_counted_and_many_are_refused(tmp_path: Path, bad) -> None:
    file = Export(export(tmp_path, [FOCUS, FOCUS | bad, FOCUS]))
    bill = sum_up(file.charges(), catalog())
    assert (file.rows, file.skipped, file.first_skipped) == (3, 1, 3) and only(bill).hours == 48.0
    many = Export(export(tmp_path, [FOCUS, FOCUS | bad, FOCUS | bad]))
    with pytest.raises(UsageError, match="2 of 3 rows cannot be read, starting with row 3"):
        list(many.charges())


def test_a_price_file_is_one_that_prices_reads_whatever_the_export_is_called(tmp_path: Path, capsys) -> None:
    path = export(tmp_path, [FOCUS, FOCUS | {"EffectiveCost": "1400"}], "sept: #1 \x1b[31m.csv")
    out = tmp_path / "prices.yaml"
    assert main(["prices", "import", str(path), "--output", str(out)]) == 0
    output = capsys.readouterr()
    assert "1 price written" in output.err and "\x1b" not in output.out
    (price,) = load_prices(out, catalog().nodes.keys()).prices
    assert (price.sku, price.region, price.basis) == (IB, "eastus", "negotiated")
    assert price.usd_per_hour == pytest.approx((2359.68 + 1400) / 48, abs=1e-4)
    assert price.source.endswith("2026-09-01 to 2026-09-01")


COST = st.floats(-1e4, 1e4).map(lambda v: round(v, 2))
CHARGES = st.builds(
    Charge, region=st.sampled_from(["eastus", "", "x"]), start=st.just(AT),
    end=st.just(AT + DAY), billed=COST, effective=COST, listed=st.none() | COST, hours=st.none() | st.floats(0, 48),
    commitment=st.sampled_from(["", "used", "unused"]),
    type_cells=st.sampled_from([(TYPE,), ("p5.48xlarge",), ("disk",), ()]), service=st.sampled_from("abcdefghi"),
)  # fmt: skip


@given(st.lists(CHARGES, max_size=12))
def test_nodes_and_other_charges_sum_to_the_export(charges) -> None:
    bill = sum_up(charges, catalog())
    parts = [line.effective for line in bill.lines.values()] + [usd for _, usd in remainder(bill)]
    assert sum(parts) == pytest.approx(sum(charge.effective for charge in charges), abs=0.1)
