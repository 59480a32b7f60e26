"""Rules, catalogs and prices that cannot be right: `advise` refuses each with file and line, and reads nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from skuwise.__main__ import main

GPU = """vendor: NVIDIA
gpus:
  L4:
    architecture: Ada
    compute_capability: "8.9"
    sm_count: 58
    boost_mhz: 2040
    tensor: {reference_mhz: 2040, flop_per_clock_per_sm: 1024, basis: published}
    dense_tflops: {fp32: 30.3, fp16: 242, bf16: 242}
    memory: {gb: 24, type: GDDR6, gb_per_second: 300}
    pcie: {generation: 4, lanes: 16}
    tdp_watts: 72
    mig_slices_max: 0
    form_factor: PCIe
    source: a datasheet that prints sparse rates
    as_of: 2026-11-01
    grade: C
"""
NODE = """provider: own
sources: {contract: ours}
nodes:
  box:
    gpu: H1000
    gpu_count: 8
    link: nvswitch
    fabric: {kind: ethernet}
    source: contract
    as_of: 2026-11-01
"""
PRICE = """prices:
  - sku: azure/Standard_ND96isr_H100_v5
    region: eastus
    usd_per_hour: 61.2
    basis: committed
    committed_until: 2999-06-30
    source: contract 4711
    as_of: 2026-11-01
"""


def refused(tmp_path: Path, capsys, name: str, text: str) -> str:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    option = ["--prices", str(path)] if name == "prices.yaml" else ["--rules", str(tmp_path)]
    assert main(["advise", "--db", str(tmp_path / "unread.db"), *option]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = [one for one in said.err.splitlines() if one.startswith("skuwise: ")]
    return line


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("gpus/own.yaml", GPU, "own.yaml:4: fp16 is 242 TFLOP/s dense, but SMs x FLOP x clock give 121.2 (twice"),
        ("nodes/own.yaml", NODE, "own.yaml:5: gpu 'H1000' is not in the catalog in node 'box'."),
        ("waste/idle.yaml", "id: idle\nid: idle\n", "idle.yaml:2: key 'id' is given twice (first in line 1)."),
        ("waste/x.yaml", "id: idel\n", "x.yaml:1: unknown rule 'idel'"),
        ("waste/x.yaml", "id: idle\nthresholds:\n  minutes: {value: 1, unit: hours}\n", "x.yaml:3: the unit is"),
        ("kinds.yaml", "thresholds:\n  mem_flat_level_min: {value: 0.99}\n", "kinds.yaml:2: mem_flat_level_min is"),
        ("custom/x.yaml", "id: x\nwhen: __import__('os')\n", "x.yaml:1: 'severity' is missing"),
        ("exceptions.yaml", "exceptions:\n  x: {rules: [idle]}\n", "exceptions.yaml:2: 'reason' is missing"),
        ("prices.yaml", PRICE.replace("61.2", "0"), "prices.yaml:4: 'usd_per_hour' is 0 and must be above 0"),
        ("prices.yaml", PRICE.replace("61.2", "-1"), "prices.yaml:4: 'usd_per_hour' is -1 and must be above 0"),
        ("prices.yaml", PRICE.replace("    usd_per_hour: 61.2\n", ""), "prices.yaml:2: 'usd_per_hour' is missing"),
        ("prices.yaml", PRICE.replace("H100_v5", "H100_v6"), "prices.yaml:2: unknown node SKU 'azure/Standard_ND96isr"),
        ("prices.yaml", PRICE.replace("region", "regoin"), "Is it what 'regoin' should be?"),
        ("prices.yaml", PRICE + "note: x\n", "prices.yaml:9: unknown key 'note'"),
        ("prices.yaml", PRICE.replace("2999", "2020"), "prices.yaml:6: the commitment to azure/Standard_ND9"),
    ],
)  # fmt: skip
def test_what_cannot_be_right_is_refused_with_its_line(tmp_path, capsys, name, text, part):
    assert part in refused(tmp_path, capsys, name, text)
