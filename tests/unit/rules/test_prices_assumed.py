# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false
"""Prices where the region is not known: what stands in, that it says so, and that ignorance never raises a claim."""

from dataclasses import replace

import pytest
from skuwise.advisor.core import formatting as words
from skuwise.advisor.core.advice_file import parse_advice
from skuwise.advisor.moves.base.pricing import PriceBook, fabric_premium
from skuwise.advisor.render import format_names, render
from skuwise.rules.base.errors import RulesError
from skuwise.rules.catalog.node_files import ANY_REGION
from skuwise.rules.catalog.providers import load_providers
from skuwise.tests.support.moves_builders import advice_of, bare, catalog, founding, node, verdicts

CATALOG = catalog()


def test_a_reference_region_has_prices_of_its_provider():
    for name, provider in load_providers().items():
        if provider.reference_region is not None:
            listed = {p.region for n in CATALOG.nodes.values() if n.provider == name for p in n.prices}
            assert provider.reference_region in listed, name


def test_every_priced_node_has_a_price_without_a_region_and_says_where_it_is_from():
    book = PriceBook(CATALOG)
    for sku in CATALOG.nodes.values():
        at = node(sku=sku.name, provider=sku.provider, region=None, gpu_sku=sku.gpu, gpu_count=sku.gpu_count)
        price = book.of(at)
        assert (price is None) == (not sku.prices), sku.name
        if price is not None:
            assert price.region_assumed == (price.region != ANY_REGION), sku.name
            assert price.id.endswith(":region-assumed") == price.region_assumed
    aws = book.of(node(sku="aws/p5.48xlarge", provider="aws", region=None))
    assert (aws.region, aws.region_assumed) == ("us-east-1", True)


def test_a_region_without_a_price_of_the_node_is_priced_as_the_reference_region():
    book = PriceBook(CATALOG)
    assert book.of(node(region="westus")) == book.of(node(region=None))
    assert not book.of(node(region="eastus")).region_assumed


def test_the_premium_of_a_fabric_is_told_within_the_assumed_region():
    known, assumed = fabric_premium(PriceBook(CATALOG), node()), fabric_premium(PriceBook(CATALOG), node(region=None))
    assert assumed.usd_per_hour == known.usd_per_hour
    assert (assumed.price.region_assumed, assumed.twin.region_assumed) == (True, True)


def test_an_assumed_region_is_written_wherever_a_price_stands():
    price = PriceBook(CATALOG).of(node(region=None))
    assert words.dated((price,)) == f"at list price, {price.as_of}, region assumed (eastus)"
    assert "region assumed" in words.price_words(price)
    known = PriceBook(CATALOG).of(node())
    assert words.price_note((price,)).endswith(", region assumed")
    assert words.price_note((price, known)).endswith(", region assumed for some")
    assert "assumed" not in words.price_note((known,))


def without_regions(given_verdicts):
    return replace(given_verdicts, nodes=tuple(replace(n, region=None) for n in given_verdicts.nodes))


def test_the_founding_case_without_a_region_states_its_dollars_and_claims_no_more():
    known, assumed = advice_of(founding()), advice_of(without_regions(founding()))
    assert assumed.summary.cost_usd == known.summary.cost_usd
    assert 0 < assumed.summary.recoverable_usd_per_month <= known.summary.recoverable_usd_per_month
    assert {r.id for r in known.recommendations} == {r.id for r in assumed.recommendations}
    assert all(p.region_assumed for p in assumed.prices)
    assert {p.id for p in assumed.prices} >= {one for r in assumed.recommendations for one in r.prices}
    (note,) = [n for n in assumed.notes if n.code == "region-assumed"]
    assert "azure eastus" in note.text
    assert "topology.kubernetes.io/region" in note.text
    for form in format_names():
        text = render(assumed, form, width=160, color=False)
        assert "region assumed" in text or '"region_assumed": true' in text or "price_region_assumed" in text, form
    back = parse_advice(render(assumed, "json", width=80, color=False).encode(), "advice.json")
    assert back.prices == assumed.prices


# Nodes and their prices


def test_a_node_nobody_used_is_given_back_at_the_lowest_price_of_any_region():
    sku = next(
        n for n in CATALOG.nodes.values()
        if len({p.usd_per_hour for p in n.prices}) > 1 and CATALOG.rented(n.provider)
    )  # fmt: skip
    at = node("idle", sku.name, provider=sku.provider, region=None, gpu_sku=sku.gpu, gpu_count=sku.gpu_count)
    idle = tuple(bare("idle", i, gpu_sku=sku.gpu) for i in range(sku.gpu_count))
    advice = advice_of(verdicts([at], bare_gpus=idle))
    lowest = min(p.usd_per_hour for p in sku.prices)
    (found,) = [r for r in advice.recommendations if r.action == "release"]
    assert found.saving_usd_per_month.p50 == pytest.approx(lowest * 730, rel=0.01)
    assert advice.summary.cost_usd == pytest.approx(336 * CATALOG.reference_price(sku).usd_per_hour)
    assert set(found.prices) <= {p.id for p in advice.prices}


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("reference_region: here", "reference_region: global", "'global' is no region"),
        ("rented: true", "rented: maybe", "'rented' must be true or false"),
        ("    rented: true\n", "", "'rented' is missing"),
        ("rented: true", "rented: false", "owned nodes have no list price"),
        ("    source: us\n", "", "'source' is missing"),
    ],
)
def test_a_wrong_file_of_providers_is_refused_with_its_line(tmp_path, old, new, part):
    text = "providers:\n  mine:\n    rented: true\n    reference_region: here\n    source: us\n    as_of: 2026-11-22\n"
    (tmp_path / "providers.yaml").write_text(text)
    assert load_providers(tmp_path)["mine"].reference_region == "here"
    assert load_providers(tmp_path)["aws"].rented
    (tmp_path / "providers.yaml").write_text(text.replace(old, new))
    with pytest.raises(RulesError, match=r"providers\.yaml:[0-9]+: ") as caught:
        load_providers(tmp_path)
    assert part in str(caught.value)
