"""GPUs, nodes, prices and premiums: names match whole, every dollar has source and date, every check its failure."""

import re
import shutil
from datetime import date

import pytest
from skuwise.rules.base.errors import RulesError
from skuwise.rules.catalog.gpu_files import load_gpus, normalise
from skuwise.rules.catalog.loader import load_catalog, load_premiums, load_providers, twins_without_fabric
from skuwise.rules.catalog.price_files import load_prices
from skuwise.tests.support.rulebooks import rules_folder
from skuwise.tests.support.rules_files import GPU, NODES, PRICES, PROVIDER

CATALOG = load_catalog()
AS_OF = re.compile(r"\d{4}-\d\d-\d\d|commit [0-9a-f]{8}")


def test_every_node_has_a_gpu_of_the_catalog_and_every_price_a_date_and_an_id():
    assert len(CATALOG.nodes) > 200
    for node in CATALOG.nodes.values():
        assert node.gpu in CATALOG.gpus and node.name == f"{node.provider}/{node.instance_type}"
    prices = [price for node in CATALOG.nodes.values() for price in node.prices]
    assert len({price.id for price in prices}) == len(prices) > 190
    assert all(AS_OF.fullmatch(price.as_of) and price.id == f"{price.sku}@{price.region}:list" for price in prices)


def test_nodes_that_differ_in_fabric_alone_are_found_both_ways():
    with_fabric = CATALOG.nodes["azure/Standard_ND96isr_H100_v5"]
    without = CATALOG.nodes["azure/Standard_ND96is_H100_v5"]
    assert CATALOG.fabric_twins(with_fabric) == (without,) and CATALOG.fabric_twins(without) == (with_fabric,)
    assert with_fabric.fabric.bytes_per_second == 400e9  # one way
    mega, high = (CATALOG.nodes[f"gcp/a3-{size}gpu-8g"] for size in ("mega", "high"))
    assert twins_without_fabric(CATALOG, mega) == (high,) and twins_without_fabric(CATALOG, high) == ()
    efa = [CATALOG.nodes[f"aws/{name}"].fabric.rdma for name in ("p4d.24xlarge", "p6-b200.48xlarge", "g5.48xlarge")]
    assert efa == [True, True, False]  # as the EC2 User Guide says


def test_a_site_adds_nodes_and_providers_of_its_own(tmp_path):
    catalog = load_catalog(rules_folder(tmp_path, {"nodes/own.yaml": NODES, "providers.yaml": PROVIDER}))
    node = catalog.node("own/box-8")
    assert node is not None and catalog.price(node, "here") == node.prices[0]
    assert [twin.name for twin in catalog.fabric_twins(node)] == ["own/plain-8"]
    assert catalog.providers["mine"].reference_region == "here" and catalog.providers["aws"].rented


def test_a_reference_region_has_prices_and_the_observed_premium_of_a_fabric_is_in_its_prior():
    for name, provider in load_providers().items():
        regions = {price.region for node in CATALOG.nodes.values() if node.provider == name for price in node.prices}
        assert provider.reference_region in {*regions, None}, name
    prior = load_premiums()["fabric-added"]
    dear, plain = (CATALOG.price(f"azure/Standard_ND96is{r}_H100_v5", "eastus") for r in ("r", ""))
    assert dear is not None and plain is not None and prior.basis == "assumed"
    assert prior.low <= dear.usd_per_hour / plain.usd_per_hour - 1 <= prior.high


def test_a_teams_price_is_read_with_its_commitment(tmp_path):
    file = rules_folder(tmp_path, {"prices.yaml": PRICES}) / "prices.yaml"
    (price,) = load_prices(file, CATALOG.nodes, today=date(2027, 6, 30)).prices
    assert price.id == "azure/Standard_ND96isr_H100_v5@eastus:committed"
    assert (price.usd_per_hour, price.committed_until, price.basis) == (61.2, "2027-06-30", "committed")


@pytest.mark.parametrize(
    ("spoken", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM5"), ("NVIDIA-H100-80GB-HBM3", "H100-SXM5"),  # as in a label of Kubernetes
        ("H100-SXM-80GB", "H100-SXM5"), ("NVIDIA H100 PCIe", "H100-PCIe"), ("NVIDIA H100 NVL", "H100-NVL"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"), ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"), ("NVIDIA A100-PCIE-40GB", "A100-PCIe-40GB"),
        ("NVIDIA H200", "H200-SXM"), ("NVIDIA H200 NVL", "H200-NVL"), ("NVIDIA L40S", "L40S"), ("NVIDIA L40", "L40"),
        # Never in part.
        *((part, None) for part in (
            "H100", "A100", "GB200X", "NVIDIA B2", "200", "", "NVIDIA", "H100-SXM5 GB200", "GH200 144GB"
        )),
    ],
)  # fmt: skip
def test_a_gpu_is_found_by_the_whole_name_its_driver_gives(spoken, name):
    gpu = CATALOG.gpu(spoken)
    assert (gpu and gpu.name) == name
    asked = [CATALOG.gpu_asked(typed) for typed in ("h100", "H1000")]  # a person may type H100
    assert [gpu and gpu.name for gpu in asked] == ["H100-SXM5", None]


def test_every_alias_leads_to_one_gpu_and_a_site_adds_and_replaces_gpus(tmp_path):
    for gpu in CATALOG.gpus.values():
        assert {CATALOG.index[normalise(alias)] for alias in (gpu.name, *gpu.aliases)} == {gpu.name}
    text = GPU + GPU.partition("gpus:\n")[2].replace("X100", "L4")
    folder = rules_folder(tmp_path, {"gpus/own.yaml": text})
    gpus = load_gpus(folder)[0]
    assert gpus["X100"].dense_flops["fp16"] == pytest.approx(989.4e12) and gpus["L4"].tdp_watts == 700
    assert len(gpus) == len(CATALOG.gpus) + 1
    shutil.copy(folder / "gpus" / "own.yaml", folder / "gpus" / "twice.yaml")
    with pytest.raises(RulesError, match=r"twice\.yaml: .*own\.yaml has 'X100' already"):
        load_gpus(folder)


def test_a_check_can_be_set_aside_only_with_a_reason(tmp_path):
    text = GPU.replace("tdp_watts: 700", "tdp_watts: 2400\n    unchecked: {power: a whole module}")
    assert load_gpus(rules_folder(tmp_path, {"gpus/own.yaml": text}))[0]["X100"].tdp_watts == 2400
    with pytest.raises(RulesError, match="unknown value 'heat'"):
        load_gpus(rules_folder(tmp_path, {"gpus/own.yaml": text.replace("power: a", "heat: a")}))
