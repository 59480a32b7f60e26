"""Nodes, prices and premiums: every dollar with its source and date, and what is not known stays unknown."""

import re
from datetime import date
from pathlib import Path

import pytest
from skuwise.advisor.recommend.pricing import PriceBook
from skuwise.rules.base.errors import RulesError
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.catalog.node_files import load_nodes
from skuwise.rules.catalog.premiums import load_premiums
from skuwise.rules.catalog.price_files import load_prices

CATALOG = load_catalog()
AS_OF = re.compile(r"\d{4}-\d\d-\d\d|commit [0-9a-f]{8}")

NODES = """
provider: own
sources: {contract: our contract}
nodes:
  box-8:
    gpu: H100-SXM5
    gpu_count: 8
    family: box
    link: nvswitch
    fabric: {kind: infiniband, gbit_per_second: 3200, nics: 8, rdma: true}
    vcpus: 192
    prices:
      - {region: here, usd_per_hour: 40.5, source: contract, as_of: 2026-11-01}
    source: contract
    as_of: 2026-11-01
  plain-8:
    gpu: H100-SXM5
    gpu_count: 8
    family: box
    link: nvswitch
    fabric: {kind: ethernet}
    source: contract
    as_of: 2026-11-01
"""
PRICES = """prices:
  - sku: azure/Standard_ND96isr_H100_v5
    region: eastus
    usd_per_hour: 61.2
    basis: committed
    committed_until: 2027-06-30
    source: contract 4711
    as_of: 2026-11-01
"""


def site(tmp_path: Path, text: str, name: str = "nodes/own.yaml") -> Path:
    """The folder of a site whose file of this name says so."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    return tmp_path


def prices(tmp_path: Path, text: str) -> Path:
    return site(tmp_path, text, "prices.yaml") / "prices.yaml"


def test_every_node_has_a_gpu_of_the_catalog():
    assert len(CATALOG.nodes) > 200
    for node in CATALOG.nodes.values():
        assert node.gpu in CATALOG.gpus and node.name == f"{node.provider}/{node.instance_type}"


def test_every_price_has_a_date_and_an_id_of_its_own():
    prices = [price for node in CATALOG.nodes.values() for price in node.prices]
    assert len({price.id for price in prices}) == len(prices) > 190
    assert all(AS_OF.fullmatch(price.as_of) and price.id == f"{price.sku}@{price.region}:list" for price in prices)


@pytest.mark.parametrize(
    ("name", "region", "usd", "as_of"),
    [
        ("azure/Standard_ND96is_H100_v5", "eastus", 88.488, "2026-09-19"),
        ("azure/Standard_ND96isr_H100_v5", "eastus", 98.32, "2026-09-19"),
        ("azure/Standard_ND96isr_H200_v5", "eastus2", 84.8, "2026-09-19"),
        ("azure/Standard_ND96amsr_A100_v4", "eastus", 32.77, "2026-09-19"),
        ("aws/p5.48xlarge", "us-east-1", 55.04, "2026-07-20"),
        # What is not known is not borrowed from a neighbour.
        ("azure/Standard_ND96isr_H100_v5", "westeurope", None, None),
        ("azure/Standard_ND96isr_H100_v5", None, None, None),
        ("aws/p5e.48xlarge", "us-east-1", None, None),
        ("bare-metal/DGX H100", "here", None, None),
        ("azure/nothing", "eastus", None, None),
    ],
)
def test_list_prices_of_well_known_nodes(name, region, usd, as_of):
    price = CATALOG.price(name, region)
    assert (price and price.usd_per_hour, price and price.as_of) == (usd, as_of)


def test_nodes_that_differ_in_fabric_alone_are_found_both_ways():
    with_fabric = CATALOG.nodes["azure/Standard_ND96isr_H100_v5"]
    without = CATALOG.nodes["azure/Standard_ND96is_H100_v5"]
    assert CATALOG.fabric_twins(with_fabric) == (without,) and CATALOG.fabric_twins(without) == (with_fabric,)
    assert with_fabric.fabric.bytes_per_second == 400e9  # one way
    mega = CATALOG.fabric_twins(CATALOG.nodes["gcp/a3-highgpu-8g"])
    assert [node.name for node in mega] == ["gcp/a3-megagpu-8g"]


@pytest.mark.parametrize(("name", "rdma"), [("p4d.24xlarge", True), ("p6-b200.48xlarge", True), ("g5.48xlarge", False)])
def test_rdma_over_efa_is_as_the_provider_documents_it(name, rdma):
    node = CATALOG.nodes[f"aws/{name}"]
    assert node.fabric.rdma is rdma and "EC2 User Guide" in node.source.text


def test_candidates_are_of_one_provider_and_priced_in_its_region():
    found = CATALOG.candidates("azure", "eastus")
    assert {node.provider for node in found} == {"azure"}
    assert "azure/Standard_ND96isr_H200_v5" not in {node.name for node in found}
    assert "azure/Standard_ND96is_H100_v5" in {node.name for node in found}


def test_nodes_of_a_gpu_can_be_narrowed_by_count():
    assert all(node.gpu_count == 8 for node in CATALOG.nodes_of("H100-SXM5", 8))
    assert len(CATALOG.nodes_of("H100-SXM5")) > len(CATALOG.nodes_of("H100-SXM5", 8)) > 5


def test_a_person_may_say_h100_but_telemetry_may_not():
    assert CATALOG.gpu("H100") is None
    asked = [CATALOG.gpu_asked(name) for name in ("h100", "H1000")]
    assert [one and one.name for one in asked] == ["H100-SXM5", None]
    assert {node.provider for node in load_nodes(providers={"aws"}).values()} == {"aws"}


def test_a_site_adds_nodes_of_its_own(tmp_path):
    catalog = load_catalog(site(tmp_path, NODES))
    node = catalog.node("own/box-8")
    assert node is not None and catalog.price(node, "here") == node.prices[0]
    assert [twin.name for twin in catalog.fabric_twins(node)] == ["own/plain-8"]


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("gpu: H100-SXM5", "gpu: H100", "own.yaml:6: gpu 'H100' is not in the catalog in node 'box-8'"),
        ("usd_per_hour: 40.5", "usd_per_hour: 0", "own.yaml:13: 'usd_per_hour' is 0 and must be above 0"),
        ("usd_per_hour: 40.5, ", "", "'usd_per_hour' is missing"),
        (", as_of: 2026-11-01}", "}", "'as_of' is missing"),
        ("source: contract, as_of", "source: hearsay, as_of", "'source' is 'hearsay'"),
        ("kind: ethernet", "kind: token-ring", "'kind' is 'token-ring'"),
        ("link: nvswitch", "link: rope", "'link' is 'rope'"),
    ],
)
def test_a_wrong_node_is_refused(tmp_path, old, new, part):
    with pytest.raises(RulesError, match=re.escape(part)):
        load_catalog(site(tmp_path, NODES.replace(old, new, 1)))


def test_a_teams_price_is_read_with_its_commitment(tmp_path):
    (price,) = load_prices(prices(tmp_path, PRICES), CATALOG.nodes, today=date(2027, 6, 30)).prices
    assert price.id == "azure/Standard_ND96isr_H100_v5@eastus:committed"
    assert (price.usd_per_hour, price.committed_until, price.basis) == (61.2, "2027-06-30", "committed")


POWER = """power:
  - {region: eastus, usd_per_kwh: 0.085, source: bill, as_of: 2026-11-01}
  - {region: global, usd_per_kwh: 0.12, source: bill, as_of: 2026-11-01}
"""


def test_electricity_has_a_price_by_region(tmp_path):
    told = load_prices(prices(tmp_path, POWER))
    book = PriceBook(CATALOG, electricity=told.power)
    found = [book.power(region) for region in ("eastus", "westus", None)]
    assert [one and one.usd_per_kwh for one in found] == [0.085, 0.12, 0.12]
    assert PriceBook(CATALOG, electricity=told.power[:1]).power("westus") is None


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("61.2", "0", "prices.yaml:4: 'usd_per_hour' is 0 and must be above 0"),
        ("61.2", "-3", "must be above 0"),
        ("61.2", "free", "'usd_per_hour' must be a number"),
        ("    usd_per_hour: 61.2\n", "", "prices.yaml:2: 'usd_per_hour' is missing"),
        ("ND96isr_H100_v5", "ND96ist_H100_v5", " or azure/Standard_ND96isr_H100_v5"),
        ("basis: committed", "basis: gift", "'basis' is 'gift'"),
        ("2027-06-30", "30.6.2027", "'committed_until' must be a date"),
        ("    committed_until: 2027-06-30\n", "", "'committed_until' is missing"),
        ("    source: contract 4711\n", "", "'source' is missing"),
    ],
)
def test_a_wrong_price_is_refused_with_its_line(tmp_path, old, new, part):
    with pytest.raises(RulesError, match=re.escape(part)):
        load_prices(prices(tmp_path, PRICES.replace(old, new)), CATALOG.nodes, today=date(2026, 11, 21))
    with pytest.raises(RulesError, match="cannot be read"):
        load_prices(tmp_path / "none.yaml")


def test_premiums_are_assumed_and_ordered():
    premiums = load_premiums()
    assert {"fabric-added", "fabric-doubled", "nvlink-bridge"} <= set(premiums)
    for premium in premiums.values():
        assert premium.basis == "assumed" and premium.low <= premium.likely <= premium.high and premium.pairs


def test_the_observed_fabric_premium_lies_in_its_prior():
    prior = load_premiums()["fabric-added"]
    dear, plain = (CATALOG.price(f"azure/Standard_ND96is{r}_H100_v5", "eastus") for r in ("r", ""))
    assert dear is not None and plain is not None
    assert prior.low <= dear.usd_per_hour / plain.usd_per_hour - 1 <= prior.high


def test_a_premium_out_of_order_is_refused(tmp_path):
    text = "premiums:\n  fabric-added: {low: 0.2, likely: 0.1, high: 0.3, basis: assumed, text: t, as_of: 2026-01-01}\n"
    with pytest.raises(RulesError, match="out of order"):
        load_premiums(site(tmp_path, text, "premiums.yaml"))
