# pyright: reportArgumentType=false, reportOperatorIssue=false, reportOptionalMemberAccess=false
"""Dollars and energy as a site says them, in settings, flags and files; costs in GPU-hours where there are none."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from skuwise.advisor.advise import load_rulebook, stated_prices
from skuwise.advisor.core import formatting as words
from skuwise.advisor.recommend.pricing import PriceBook, fabric_premium
from skuwise.advisor.show.writers.formats import FORMATS, render
from skuwise.rules.base.errors import UsageError
from skuwise.rules.catalog.loader import ANY_REGION
from skuwise.rules.catalog.price_files import (
    HourPrices,
    SiteEnergy,
    SiteFigure,
    StatedPrices,
    load_prices,
    resolve_prices,
)
from skuwise.rules.catalog.types import PowerPrice, Price
from skuwise.rules.models import load_move_model, load_power_model
from skuwise.tests.support.moves_builders import IB, PLAIN, advice_of, catalog, founding, node, verdicts

CATALOG = catalog()
DAY = "2026-11-22"
HOURLY = HourPrices({"H100-SXM5": 2.10}, {}, DAY)


def settings(folder: Path, text: str, flags=(), environ=None) -> StatedPrices:
    file = folder / "skuwise.toml"
    file.write_text(text)
    return stated_prices(flags, environ or {}, system_file=file, config_home=folder / "none")


def said(tmp_path, text="", flags=(), environ=None) -> HourPrices:
    return resolve_prices(settings(tmp_path, text, flags, environ), CATALOG, date(2026, 11, 22))


def test_settings_flags_and_environment_give_prices_by_the_catalogs_names(tmp_path):
    text = '[prices]\ngpu_hour_usd = { "H100-SXM-80GB" = 2.10 }\nnode_hour_usd = { "aws/p5.48xlarge" = 55 }\n'
    hourly = said(tmp_path, text)
    assert (dict(hourly.gpu), dict(hourly.node), hourly.as_of) == ({"H100-SXM5": 2.1}, {"aws/p5.48xlarge": 55.0}, DAY)
    # A flag goes over the settings for its GPU and leaves the others.
    both = said(tmp_path, '[prices]\ngpu_hour_usd = { "H100-SXM5" = 2.10, "L40S" = 0.8 }\n', ["H100-SXM5=1.9"])
    assert dict(both.gpu) == {"H100-SXM5": 1.9, "L40S": 0.8}
    environ = {"SKUWISE_PRICES_GPU_HOUR_USD": "H100-SXM5=2.5, L40S=1"}
    assert dict(said(tmp_path, environ=environ).gpu) == {"H100-SXM5": 2.5, "L40S": 1.0}
    assert said(tmp_path) == HourPrices({}, {}, DAY)


@pytest.mark.parametrize(
    ("text", "flags", "part"),
    [
        ('node_hour_usd = { "aws/p5.49xlarge" = 2 }', [], " or aws/p5.48xlarge"),
        ('gpu_hour_usd = { "H100-SXM5" = -1 }', [], "Invalid price of 'H100-SXM5' in prices.gpu_hour_usd in"),
        ('gpu_hour_usd = { "H100-SXM5" = 0 }', [], "Write US dollars per hour as a number, for example 2.10"),
        ('gpu_hour_usd = { "H100-SXM5" = nan }', [], "'nan'"),
        ('gpu_hour_usd = { "H100-SXM5" = true }', [], "'True'"),
        ("", ["H100-SXM5"], "Invalid --gpu-hour-usd 'H100-SXM5': expected SKU=PRICE."),
        ("", ["=2"], "expected SKU=PRICE"),
        ("", ["H100-SXM5=2", "H100-SXM5=3"], "--gpu-hour-usd has two prices of 'H100-SXM5'. Keep one."),
        ("", ["H100-SXM5=1e999"], "Invalid price of 'H100-SXM5' in --gpu-hour-usd: '1e999'"),
        ("", ["H100-SXM5=$2"], "'$2'"),
        ("", ["\x1b[31mH=x"], "Invalid price of"),
        ("", ["?=2"], "an invalid GPU name"),
        ("", ["NVIDIA GB10=2", "nvidia  gb10=3"], "two prices of"),
    ],
)
def test_a_wrong_setting_or_flag_is_a_sentence_and_a_remedy(tmp_path, text, flags, part):
    with pytest.raises(UsageError) as caught:
        said(tmp_path, f"[prices]\n{text}\n", flags)
    assert part in str(caught.value) and "\n" not in str(caught.value) and "\x1b" not in str(caught.value)


def test_an_owned_fleet_without_any_sku_is_priced_by_its_gpus():
    book = PriceBook(CATALOG, hourly=HOURLY)
    hall = node(sku=None, provider=None, region=None)
    price = book.of(hall)
    assert (price.usd_per_hour, price.basis, price.sku) == (pytest.approx(16.8), "owned", "8 x H100-SXM5")
    assert not price.region_assumed
    assert words.price_words(price) == (f"$16.80 per node-hour owned price, {DAY} (your setting, gpu_hour_usd)")
    assert book.per_gpu_hour(hall) == pytest.approx(2.10) and book.of(replace(hall, gpu_sku="L40S")) is None
    assert book.of(replace(hall, gpu_count=0)) is None
    dgx = book.of(node(sku="bare-metal/DGX H100", provider=None, region=None))
    assert (dgx.usd_per_hour, dgx.basis) == (pytest.approx(16.8), "owned")
    assert book.of(replace(hall, provider="our-hall")).basis == "owned"


@pytest.mark.parametrize("written", ["NVIDIA GeForce RTX 4090", "nvidia  geforce rtx 4090", "GeForce RTX 4090"])
def test_a_gpu_that_the_catalog_lacks_has_a_price_by_the_name_that_telemetry_gives_it(tmp_path, written):
    flags = [f"{written}=0.35", "NVIDIA GB10=2.10"]
    text = f'[prices]\ngpu_hour_usd = {{ "{written}" = 0.35, "NVIDIA GB10" = 2.10 }}\n'
    hourly = said(tmp_path, flags=flags)
    assert dict(hourly.gpu) == dict(said(tmp_path, text).gpu)
    desk = node(sku=None, provider=None, region=None, gpu_sku=None, gpu_name="NVIDIA GeForce RTX 4090", gpu_count=4)
    assert PriceBook(CATALOG, hourly=hourly).per_gpu_hour(desk) == pytest.approx(0.35)
    advice = advice_of(verdicts([desk]), hourly=hourly)
    assert advice.summary.cost_usd == pytest.approx(4 * 0.35 * desk.span_hours)
    (note,) = [n for n in advice.notes if n.code == "price-not-used"]
    assert note.fields == {"gpus": "NVIDIA GB10"}


def test_prices_come_in_the_order_that_is_documented():
    file = (Price(f"{IB}@eastus:committed", IB, "eastus", 61.0, "committed", "contract", "2026-10-01", "2027-06-30"),)
    by_gpu = HourPrices({"H100-SXM5": 5.0}, {}, DAY)
    both = replace(by_gpu, node={IB: 70.0})
    assert PriceBook(CATALOG, file, hourly=both).of(node()).usd_per_hour == 61.0
    assert PriceBook(CATALOG, hourly=both).of(node()).usd_per_hour == 70.0
    for at in (node(), node(sku=None), node(region=None)):
        price = PriceBook(CATALOG, hourly=by_gpu).of(at)
        assert (price.usd_per_hour, price.basis) == (40.0, "negotiated")
    assert PriceBook(CATALOG).of(node()).basis == "list"


def test_a_price_by_the_gpu_tells_nothing_of_what_a_fabric_costs():
    premium = fabric_premium(PriceBook(CATALOG, hourly=HOURLY), node())
    assert premium.assumed and 0 < premium.usd_per_hour < 16.8
    told_apart = PriceBook(CATALOG, hourly=HourPrices({}, {IB: 50.0, PLAIN: 45.0}, DAY))
    assert fabric_premium(told_apart, node()).usd_per_hour == pytest.approx(5.0)


def test_without_any_price_costs_are_gpu_hours_and_one_line_says_how_to_get_dollars():
    given = founding()
    nodes = tuple(replace(n, node_sku=None, provider=None, region=None) for n in given.nodes)
    workloads = tuple(replace(w, node_sku=None) for w in given.workloads)
    advice = advice_of(replace(given, nodes=nodes, workloads=workloads))
    line = (
        f'No price for {len(nodes)} nodes (H100-SXM5). Set gpu_hour_usd = {{ "H100-SXM5" = YOUR_PRICE }} under '
        "[prices] in skuwise.toml, or --gpu-hour-usd H100-SXM5=PRICE."
    )
    assert [note.text for note in advice.notes].count(line) == 1
    table = render(advice, "table", width=160, color=False)
    assert line in " ".join(table.split()) and table.count(line[:40]) == 1 and "Workloads by GPU-hours" in table
    text = render(advice, "markdown", width=160, color=False)
    assert "US dollars" not in text
    for part in ("## Workloads", "## Prices"):
        assert "unknown" not in text.partition(part)[2].partition("\n## ")[0].replace("are unknown", "")


def test_every_priced_node_has_a_price_without_a_region_and_says_where_it_is_from():
    book = PriceBook(CATALOG)
    for sku in CATALOG.nodes.values():
        at = node(sku=sku.name, provider=sku.provider, region=None, gpu_sku=sku.gpu, gpu_count=sku.gpu_count)
        price = book.of(at)
        assert (price is None) == (not sku.prices), sku.name
        if price is not None:
            assert price.region_assumed == (price.region != ANY_REGION), sku.name
            assert price.id.endswith(":region-assumed") == price.region_assumed
    assert book.of(node(sku="aws/p5.48xlarge", provider="aws", region=None)).region == "us-east-1"
    assert book.of(node(region="westus")) == book.of(node(region=None))
    assert not book.of(node(region="eastus")).region_assumed
    with_region, assumed = fabric_premium(book, node()), fabric_premium(book, node(region=None))
    assert assumed.usd_per_hour == with_region.usd_per_hour
    assert (assumed.price.region_assumed, assumed.twin.region_assumed) == (True, True)


def test_the_founding_case_without_a_region_states_its_dollars_and_claims_no_more():
    given = founding()
    nowhere = replace(given, nodes=tuple(replace(n, region=None) for n in given.nodes))
    with_region, assumed = advice_of(given), advice_of(nowhere)
    assert assumed.summary.cost_usd == with_region.summary.cost_usd
    assert 0 < assumed.summary.recoverable_usd_per_month <= with_region.summary.recoverable_usd_per_month
    assert {r.id for r in with_region.recommendations} == {r.id for r in assumed.recommendations}
    assert all(p.region_assumed for p in assumed.prices)
    assert {p.id for p in assumed.prices} >= {price for r in assumed.recommendations for price in r.prices}
    (note,) = [n for n in assumed.notes if n.code == "region-assumed"]
    assert "azure eastus" in note.text and "topology.kubernetes.io/region" in note.text
    for form in FORMATS:
        text = render(assumed, form, width=160, color=False)
        assert "region assumed" in text or '"region_assumed": true' in text or "price_region_assumed" in text, form


SOURCED = 'source = "bill", as_of = "2026-11-01"'
HOURS = [100.0 + n for n in range(24)]


def stated(tmp_path: Path, text: str) -> SiteEnergy:
    return settings(tmp_path, f"[energy]\n{text}\n").energy


def test_settings_and_price_files_say_the_same_in_their_own_forms(tmp_path: Path) -> None:
    toml = stated(
        tmp_path,
        f"usd_per_kwh = {{ value = 0.085, {SOURCED} }}\npue = {{ value = 1.25, source = 'bill', as_of = 2026-11-01 }}\n"
        f"co2_grams_per_kwh = {{ by_hour_utc = {HOURS}, {SOURCED} }}",
    )
    file = tmp_path / "prices.yaml"
    file.write_text(
        "energy:\n  usd_per_kwh: {value: 0.085, source: bill, as_of: 2026-11-01}\n"
        "  pue: {value: 1.25, source: bill, as_of: 2026-11-01}\n"
        f"  co2_grams_per_kwh: {{by_hour_utc: {HOURS}, source: bill, as_of: 2026-11-01}}\n"
    )
    assert toml == load_prices(file).energy and toml.usd_per_kwh == SiteFigure("bill", "2026-11-01", 0.085)
    carbon = toml.co2_grams_per_kwh
    assert carbon is not None and [carbon.at(hour) for hour in (0, 5, 23)] == [100.0, 105.0, 123.0]
    assert toml.pue is not None and toml.pue.at(7) == 1.25 and stated(tmp_path, "") == SiteEnergy()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"co2_grams_per_kwh = {{ value = 0, {SOURCED} }}", "expected a number > 0"),
        (f"co2_grams_per_kwh = {{ value = 380000, {SOURCED} }}", "expected a number <= 2500"),
        (f"co2_grams_per_kwh = {{ by_hour_utc = [1, 2], {SOURCED} }}", "by_hour_utc: expected a list of length >= 24"),
        (f"co2_grams_per_kwh = {{ by_hour_utc = {[*HOURS[:23], 0]}, {SOURCED} }}",
         "by_hour_utc.24: expected a number > 0"),
        (f"co2_grams_per_kwh = {{ value = 3, by_hour_utc = {HOURS}, {SOURCED} }}", "give either 'value' or 'by_hour"),
        (f"pue = {{ value = 0.9, {SOURCED} }}", "expected a number >= 1"),
        (f"pue = {{ value = 3.5, {SOURCED} }}", "expected a number <= 3"),
        (f"pue = {{ value = nan, {SOURCED} }}", "expected a number"), ("pue = 1.3", "expected a table"),
        ("pue = { value = 1.3 }", "'source' is missing"), ("pue = { value = 1.3, source = 'x' }", "'as_of' is missing"),
        ("pue = { value = 1.3, source = 'x', as_of = 'May' }", "as_of: expected a date"),
        (f"usd_per_kwh = {{ value = 85, {SOURCED} }}", "expected a number <= 5"),
        (f"usd_per_kwh = {{ value = 1, unit = 3, {SOURCED} }}", "unknown key 'unit'"),
        ("carbon = 3", "Unknown setting 'energy.carbon'"),
    ],
)  # fmt: skip
def test_a_figure_that_cannot_be_is_refused_in_one_sentence_with_a_remedy(tmp_path, text, said):
    with pytest.raises(UsageError) as refused:
        stated(tmp_path, text)
    assert said in refused.value.message and refused.value.message.count(". ") == 0
    assert f"energy.{text.split()[0]}" in refused.value.message and refused.value.remedy.endswith((".", "?"))


def test_a_price_file_goes_over_the_settings_figure_by_figure(tmp_path: Path) -> None:
    site = stated(tmp_path, f"usd_per_kwh = {{ value = 0.1, {SOURCED} }}\npue = {{ value = 1.2, {SOURCED} }}")
    file = tmp_path / "prices.yaml"
    file.write_text("energy:\n  pue: {value: 1.5, source: meter, as_of: 2026-10-01}\n")
    book = load_rulebook(None, file, 1_790_000_000.0, StatedPrices(energy=site))
    assert book.energy.pue == SiteFigure("meter", "2026-10-01", 1.5)
    assert book.energy.usd_per_kwh == SiteFigure("bill", "2026-11-01", 0.1)
    # Rules on lower clocks use the site's price of electricity, too.
    assert book.power == (PowerPrice("global", 0.1, "bill", "2026-11-01"),)


def test_an_architecture_without_runs_is_never_narrower():
    model = load_power_model()
    assert model.measured("Volta") and not model.measured("hopper")
    for slowdown in (1.0, 1.1, 1.3, 3.0):
        here, there = model.spread(slowdown, "ampere"), model.spread(slowdown, "hopper")
        assert there[0] >= here[0] and there[1] >= here[1]
    bounds = [spread.up_to for spread in model.classes]
    assert model.spread(3.0, "ampere")[0] > model.spread(1.1, "ampere")[0] and bounds == sorted(set(bounds))
    profiles = load_move_model().profiles
    assert all(sum(shares.values()) == pytest.approx(1) for shares in profiles.shares.values())
