"""GPUs, nodes, prices and premiums: names match whole, every dollar has source and date, every check its failure."""

import re
import shutil
from datetime import date
from pathlib import Path

import pytest
from skuwise.rules.base.errors import RulesError
from skuwise.rules.catalog.gpu_files import load_gpus, normalise
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.catalog.node_files import load_nodes, load_premiums
from skuwise.rules.catalog.price_files import load_prices
from skuwise.tests.support.rulebooks import rules_folder

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


def prices(tmp_path: Path, text: str) -> Path:
    return rules_folder(tmp_path, {"prices.yaml": text}) / "prices.yaml"


def test_every_node_has_a_gpu_of_the_catalog():
    assert len(CATALOG.nodes) > 200
    for node in CATALOG.nodes.values():
        assert node.gpu in CATALOG.gpus and node.name == f"{node.provider}/{node.instance_type}"


def test_every_price_has_a_date_and_an_id_of_its_own():
    prices = [price for node in CATALOG.nodes.values() for price in node.prices]
    assert len({price.id for price in prices}) == len(prices) > 190
    assert all(AS_OF.fullmatch(price.as_of) and price.id == f"{price.sku}@{price.region}:list" for price in prices)


def test_nodes_that_differ_in_fabric_alone_are_found_both_ways():
    with_fabric = CATALOG.nodes["azure/Standard_ND96isr_H100_v5"]
    without = CATALOG.nodes["azure/Standard_ND96is_H100_v5"]
    assert CATALOG.fabric_twins(with_fabric) == (without,) and CATALOG.fabric_twins(without) == (with_fabric,)
    assert with_fabric.fabric.bytes_per_second == 400e9  # one way
    mega = CATALOG.fabric_twins(CATALOG.nodes["gcp/a3-highgpu-8g"])
    assert [node.name for node in mega] == ["gcp/a3-megagpu-8g"]

    efa = [CATALOG.nodes[f"aws/{name}"].fabric.rdma for name in ("p4d.24xlarge", "p6-b200.48xlarge", "g5.48xlarge")]
    assert efa == [True, True, False]  # as the EC2 User Guide says


def test_a_person_may_say_h100_but_telemetry_may_not():
    assert CATALOG.gpu("H100") is None
    asked = [CATALOG.gpu_asked(name) for name in ("h100", "H1000")]
    assert [one and one.name for one in asked] == ["H100-SXM5", None]
    assert {node.provider for node in load_nodes(providers={"aws"}).values()} == {"aws"}


def test_a_site_adds_nodes_of_its_own(tmp_path):
    catalog = load_catalog(rules_folder(tmp_path, {"nodes/own.yaml": NODES}))
    node = catalog.node("own/box-8")
    assert node is not None and catalog.price(node, "here") == node.prices[0]
    assert [twin.name for twin in catalog.fabric_twins(node)] == ["own/plain-8"]


def test_a_teams_price_is_read_with_its_commitment(tmp_path):
    (price,) = load_prices(prices(tmp_path, PRICES), CATALOG.nodes, today=date(2027, 6, 30)).prices
    assert price.id == "azure/Standard_ND96isr_H100_v5@eastus:committed"
    assert (price.usd_per_hour, price.committed_until, price.basis) == (61.2, "2027-06-30", "committed")


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("61.2", "0", "prices.yaml: prices.1.usd_per_hour: expected a number > 0"),
        ("    usd_per_hour: 61.2\n", "", "prices.yaml: prices.1: 'usd_per_hour' is missing"),
        ("ND96isr_H100_v5", "ND96ist_H100_v5", " or azure/Standard_ND96isr_H100_v5"),
        ("basis: committed", "basis: gift", "prices.1.basis: unknown value 'gift'"),
        ("2027-06-30", "30.6.2027", "prices.1.committed_until: "),
        ("    committed_until: 2027-06-30\n", "", "'committed_until' is missing"),
    ],
)
def test_a_wrong_price_is_refused_with_its_key(tmp_path, old, new, part):
    with pytest.raises(RulesError, match=re.escape(part)):
        load_prices(prices(tmp_path, PRICES.replace(old, new)), CATALOG.nodes, today=date(2026, 11, 21))
    with pytest.raises(RulesError, match="cannot be read"):
        load_prices(tmp_path / "none.yaml")


def test_the_observed_fabric_premium_lies_in_its_prior():
    premiums = load_premiums()
    assert {premium.basis for premium in premiums.values()} == {"assumed"}
    dear, plain = (CATALOG.price(f"azure/Standard_ND96is{r}_H100_v5", "eastus") for r in ("r", ""))
    assert dear is not None and plain is not None
    assert premiums["fabric-added"].low <= dear.usd_per_hour / plain.usd_per_hour - 1 <= premiums["fabric-added"].high


LIBRARY = load_gpus()

ENTRY = """
vendor: NVIDIA
gpus:
  X100:
    aliases: ["NVIDIA X100"]
    architecture: Hopper
    compute_capability: "9.0"
    sm_count: 132
    boost_mhz: 1980
    tensor: {reference_mhz: 1830, flop_per_clock_per_sm: 4096, basis: published}
    dense_tflops: {fp32: 66.9, fp16: 989.4, bf16: 989.4, fp8: 1978.9, int8: 1978.9}
    memory: {gb: 80, type: HBM3, gb_per_second: 3350}
    nvlink: {gb_per_second_one_way: 450, links: 18, generation: 4}
    pcie: {generation: 5, lanes: 16}
    tdp_watts: 700
    mig_slices_max: 7
    form_factor: SXM5
    source: a datasheet
    as_of: 2026-11-01
    grade: B
"""


def gpu_site(tmp_path: Path, text: str) -> Path:
    return rules_folder(tmp_path, {"gpus/own.yaml": text})


@pytest.mark.parametrize(
    ("spoken", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM5"),
        ("NVIDIA-H100-80GB-HBM3", "H100-SXM5"),  # as Kubernetes writes it into a label
        ("H100-SXM-80GB", "H100-SXM5"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100-PCIe-40GB"),
        ("NVIDIA H200", "H200-SXM"),
        ("NVIDIA H200 NVL", "H200-NVL"),
        ("H200-SXM-141GB", "H200-SXM"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L40", "L40"),
        # Never in part.
        *((part, None) for part in (
            "H100", "A100", "GB200X", "NVIDIA B2", "200", "", "NVIDIA", "H100-SXM5 GB200", "GH200 144GB"
        )),
    ],
)  # fmt: skip
def test_a_gpu_is_found_by_the_whole_name_its_driver_gives(spoken, name):
    found = LIBRARY.find(spoken)
    assert (found and found.name) == name


def test_every_alias_leads_to_one_gpu():
    for gpu in LIBRARY.gpus.values():
        assert {LIBRARY.index[normalise(alias)] for alias in (gpu.name, *gpu.aliases)} == {gpu.name}


def test_a_site_adds_a_gpu_and_replaces_one(tmp_path):
    library = load_gpus(gpu_site(tmp_path, ENTRY + ENTRY.partition("gpus:\n")[2].replace("X100", "L4")))
    assert library.gpus["X100"].dense_flops["fp16"] == pytest.approx(989.4e12) and library.gpus["L4"].tdp_watts == 700
    assert len(library.gpus) == len(LIBRARY.gpus) + 1


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("fp16: 989.4, bf16: 989.4, fp8: 1978.9, int8: 1978.9", "fp16: 1979", "is it the rate with sparsity?"),
        ("fp16: 989.4, bf16: 989.4, fp8: 1978.9, int8: 1978.9", "fp16: 494.7", "is it one die of two?"),
        ("fp16: 989.4, bf16: 989.4", "fp16: 940, bf16: 940", "the fp16 rate over SMs x FLOP x clock is 0.95"),
        (
            "flop_per_clock_per_sm: 4096",
            "flop_per_clock_per_sm: 8192",
            "flop_per_clock_per_sm is 8192 and must be from 0 to 4096",
        ),
        # solving the clock from a sparse rate passes the formula and asks for an impossible clock
        (
            "tensor: {reference_mhz: 1830, flop_per_clock_per_sm: 4096, basis: published}\n"
            "    dense_tflops: {fp32: 66.9, fp16: 989.4, bf16: 989.4, fp8: 1978.9, int8: 1978.9}",
            "tensor: {reference_mhz: 3660, flop_per_clock_per_sm: 4096, basis: back-solved}\n"
            "    dense_tflops: {fp32: 66.9, fp16: 1978.9}",
            "the clock that the fp16 rate asks for is 3660",
        ),
        ("fp32: 66.9", "fp32: 33.5", "fp32 rate is 33.5"),
        ("bf16: 989.4", "bf16: 494", "bf16 rate is 494"),
        ("fp8: 1978.9", "fp8: 3958", "fp8 rate is 3958"),
        ("int8: 1978.9", "int8: 3958", "int8 rate is 3958"),
        ("int8: 1978.9", "int8: 1978.9, fp4: 9000", "fp4 rate is 9000"),
        ("gb_per_second: 3350", "gb_per_second: 1675", "gb_per_second of HBM3 is 1675"),
        ("gb: 80,", "gb: 80, mib: 40960,", "mib of memory beside its gb is 40"),
    ],
)
def test_every_check_refuses_its_example(tmp_path, old, new, part):
    assert old in ENTRY
    with pytest.raises(RulesError) as caught:
        load_gpus(gpu_site(tmp_path, ENTRY.replace(old, new)))
    assert part in str(caught.value) and "own.yaml: gpus.X100: " in str(caught.value)


def test_a_check_can_be_set_aside_only_with_a_reason(tmp_path):
    text = ENTRY.replace("tdp_watts: 700", "tdp_watts: 2400\n    unchecked: {power: a whole module}")
    assert load_gpus(gpu_site(tmp_path, text)).gpus["X100"].tdp_watts == 2400
    with pytest.raises(RulesError, match="unknown value 'heat'"):
        load_gpus(gpu_site(tmp_path, text.replace("power: a", "heat: a")))


WRONG_NODES = [
    ("gpu: H100-SXM5", "gpu: H100", "own.yaml: nodes.box-8: gpu 'H100' is not in the catalog"),
    ("source: contract, as_of", "source: hearsay, as_of", "unknown source 'hearsay'"),
    ("kind: ethernet", "kind: token-ring", "fabric.kind: unknown value 'token-ring'"),
]
WRONG_GPUS = [
    ("tdp_watts", "tdp_wats", "gpus.X100: unknown key 'tdp_wats'. Did you mean tdp_watts?"),
    ("grade: B", "grade: B\n    colour: red", "own.yaml: gpus.X100: unknown key 'colour'."),
    ('["NVIDIA X100"]', '["NVIDIA L4"]', "already names gpu 'L4'"),
    ("fp32: 66.9", "fp33: 66.9", "unknown value 'fp33'"),
    ("vendor: NVIDIA\n", "", "'vendor' is missing"),
]


@pytest.mark.parametrize(
    ("load", "name", "text", "part"),
    [
        *((load_catalog, "nodes/own.yaml", NODES.replace(old, new, 1), part) for old, new, part in WRONG_NODES),
        *((load_gpus, "gpus/own.yaml", ENTRY.replace(old, new), part) for old, new, part in WRONG_GPUS),
    ],
)
def test_a_wrong_node_or_gpu_is_refused(load, name, text, part, tmp_path):
    with pytest.raises(RulesError, match=re.escape(part)):
        load(rules_folder(tmp_path, {name: text}))


def test_the_same_gpu_in_two_files_of_one_folder_is_refused(tmp_path):
    folder = gpu_site(tmp_path, ENTRY)
    shutil.copy(folder / "gpus" / "own.yaml", folder / "gpus" / "twice.yaml")
    with pytest.raises(RulesError, match="another file of this folder"):
        load_gpus(folder)
