"""Rules, catalogs and prices that cannot be right: `advise` refuses each with file and line, and reads nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from skuwise.__main__ import main

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
        ("waste/idle.yaml", "id: idle\nid: idle\n", "idle.yaml:2: key 'id' is given twice (first in line 1)."),
        ("waste/x.yaml", "id: idle\nthresholds:\n  minutes: {value: 1, unit: hours}\n", "x.yaml:3: the unit is"),
        ("custom/x.yaml", "id: x\nwhen: __import__('os')\n", "x.yaml:1: 'severity' is missing"),
        ("prices.yaml", PRICE.replace("61.2", "0"), "prices.yaml:4: 'usd_per_hour' is 0 and must be above 0"),
        ("prices.yaml", PRICE.replace("H100_v5", "H100_v6"), "prices.yaml:2: unknown node SKU 'azure/Standard_ND96isr"),
        ("prices.yaml", PRICE.replace("2999", "2020"), "prices.yaml:6: the commitment to azure/Standard_ND9"),
    ],
)  # fmt: skip
def test_what_cannot_be_right_is_refused_with_its_line(tmp_path, capsys, name, text, part):
    assert part in refused(tmp_path, capsys, name, text)
