"""The GPU catalog: names match whole or not at all, figures stand their arithmetic, every check has its failure."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from skuwise.rules.base.errors import RulesError
from skuwise.rules.catalog.gpu_files import load_gpus, normalise

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


def site(tmp_path: Path, text: str) -> Path:
    (tmp_path / "gpus").mkdir(exist_ok=True)
    (tmp_path / "gpus" / "own.yaml").write_text(text)
    return tmp_path


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


def test_figures_of_h100_are_in_base_units_and_one_way():
    gpu = LIBRARY.gpus["H100-SXM5"]
    assert gpu.dense_flops["bf16"] == pytest.approx(989.4e12) and gpu.mem_bytes == 80 * 1024**3
    assert gpu.nvlink_bytes_per_second == 450e9 and gpu.tensor_reference_hertz == 1830e6
    assert gpu.pcie_bytes_per_second == pytest.approx(63.0e9, rel=0.01) and gpu.achieved.mem == 0.88
    assert (gpu.source.grade, gpu.source.as_of) == ("A", "2026-11-21")


def test_the_known_traps_are_avoided():
    gpus = LIBRARY.gpus
    assert gpus["L40"].dense_flops["fp16"] == pytest.approx(gpus["L40S"].dense_flops["fp16"] / 2, rel=0.01)
    assert gpus["A10G"].dense_flops["fp16"] == 70e12
    assert (gpus["B200-SXM"].mem_bytes, gpus["B200-SXM"].mem_bandwidth_bytes_per_second) == (180 * 1024**3, 7.7e12)
    assert "bf16" not in gpus["V100-SXM2-16GB"].dense_flops and gpus["L4"].nvlink_bytes_per_second is None
    assert gpus["H100-NVL"].source.grade == "C"


def test_a_site_adds_a_gpu_and_replaces_one(tmp_path):
    library = load_gpus(site(tmp_path, ENTRY + ENTRY.partition("gpus:\n")[2].replace("X100", "L4")))
    assert library.gpus["X100"].dense_flops["fp16"] == pytest.approx(989.4e12) and library.gpus["L4"].tdp_watts == 700
    assert len(library.gpus) == len(LIBRARY.gpus) + 1


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("fp16: 989.4, bf16: 989.4, fp8: 1978.9, int8: 1978.9", "fp16: 1979", "is it the rate with sparsity?"),
        ("fp16: 989.4, bf16: 989.4, fp8: 1978.9, int8: 1978.9", "fp16: 494.7", "is it one die of two?"),
        ("fp16: 989.4, bf16: 989.4", "fp16: 940, bf16: 940", "SMs x FLOP x clock give"),
        ("flop_per_clock_per_sm: 4096", "flop_per_clock_per_sm: 8192", "is more than the 4096"),
        # solving the clock from a sparse rate passes the formula and asks for an impossible clock
        (
            "tensor: {reference_mhz: 1830, flop_per_clock_per_sm: 4096, basis: published}\n"
            "    dense_tflops: {fp32: 66.9, fp16: 989.4, bf16: 989.4, fp8: 1978.9, int8: 1978.9}",
            "tensor: {reference_mhz: 3660, flop_per_clock_per_sm: 4096, basis: back-solved}\n"
            "    dense_tflops: {fp32: 66.9, fp16: 1978.9}",
            "asks for a clock of 3660 MHz",
        ),
        ("fp32: 66.9", "fp32: 33.5", "fp32 is 33.5"),
        ("bf16: 989.4", "bf16: 494", "bf16 is 494 TFLOP/s and must be 1 x fp16"),
        ("fp8: 1978.9", "fp8: 3958", "fp8 is 3958 TFLOP/s and must be 2 x fp16"),
        ("int8: 1978.9", "int8: 3958", "int8 is 3958"),
        ("int8: 1978.9", "int8: 1978.9, fp4: 9000", "fp4 is 9000 TFLOP/s and must be 2 x fp8"),
        ("gb_per_second: 3350", "gb_per_second: 1675", "is not what HBM3 delivers"),
        ("gb: 80,", "gb: 80, mib: 40960,", "mib and gb of memory disagree"),
    ],
)
def test_every_check_refuses_its_example(tmp_path, old, new, part):
    assert old in ENTRY
    with pytest.raises(RulesError) as caught:
        load_gpus(site(tmp_path, ENTRY.replace(old, new)))
    assert part in str(caught.value) and "own.yaml:5: " in str(caught.value)


# What scraped tables say of one die of two, in itself as consistent as the whole, and of a part at its sibling's rate.
DIE = {
    "compute_capability": "10.0",
    "sm_count": 74,
    "boost_mhz": 1965,
    "tensor": {"reference_mhz": 1856, "flop_per_clock_per_sm": 8192, "basis": "published"},
    "dense_tflops": {"fp32": 37.2, "fp16": 1125, "bf16": 1125, "fp8": 2250, "int8": 2250, "fp4": 4500},
    "memory": {"gb": 90, "type": "HBM3e", "gb_per_second": 3850},
}
L40 = {
    "compute_capability": "8.9",
    "sm_count": 142,
    "boost_mhz": 2490,
    "tensor": {"reference_mhz": 2490, "flop_per_clock_per_sm": 1024, "basis": "published"},
    "dense_tflops": {"fp32": 90.5, "fp16": 362, "bf16": 362},
    "memory": {"gb": 48, "type": "GDDR6", "gb_per_second": 864},
}


@pytest.mark.parametrize(
    ("name", "architecture", "figures", "said"),
    [
        ("B200-SXM", "Blackwell", DIE, "3850 GB/s is not what HBM3e delivers on one GPU"),
        ("L40", "Ada", L40, "1024 FLOP per clock and SM is more than the 512 of L40"),
    ],
)
def test_figures_that_agree_among_themselves_alone_are_refused(tmp_path, name, architecture, figures, said):
    entry = yaml.safe_load(ENTRY)["gpus"]["X100"] | {"architecture": architecture, "as_of": "2026-11-01"} | figures
    with pytest.raises(RulesError, match=said):
        load_gpus(site(tmp_path, yaml.safe_dump({"vendor": "NVIDIA", "gpus": {name: entry}})))


def test_a_check_can_be_set_aside_only_with_a_reason(tmp_path):
    text = ENTRY.replace("tdp_watts: 700", "tdp_watts: 2400\n    unchecked: {power: a whole module}")
    assert load_gpus(site(tmp_path, text)).gpus["X100"].tdp_watts == 2400
    with pytest.raises(RulesError, match="unknown key 'heat'"):
        load_gpus(site(tmp_path, text.replace("power: a", "heat: a")))


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("tdp_watts", "tdp_wats", "'tdp_watts' is missing in gpu 'X100'"),
        ("grade: B", "grade: B\n    colour: red", "own.yaml:21: unknown key 'colour' in gpu 'X100'"),
        ("links: 18", "links: 18, speed: 5", "unknown key 'speed'"),
        ('["NVIDIA X100"]', '["NVIDIA L4"]', "already names gpu 'L4'"),
        ("fp32: 66.9", "fp33: 66.9", "unknown key 'fp33'"),
        ("vendor: NVIDIA\n", "", "'vendor' is missing"),
    ],
)
def test_a_wrong_entry_is_refused(tmp_path, old, new, part):
    with pytest.raises(RulesError, match=re.escape(part)):
        load_gpus(site(tmp_path, ENTRY.replace(old, new)))


def test_the_same_gpu_in_two_files_of_one_folder_is_refused(tmp_path):
    folder = site(tmp_path, ENTRY)
    shutil.copy(folder / "gpus" / "own.yaml", folder / "gpus" / "twice.yaml")
    with pytest.raises(RulesError, match="another file of this folder"):
        load_gpus(folder)
