"""docs/patches.md: its examples run, their patches are applied and undone, and its table is that of the code."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from skuwise.advisor.core.advice_types import Action, Interval
from skuwise.advisor.patches.build import PATCHES
from skuwise.advisor.patches.model import TARGETS
from skuwise.tests.support.kubectl import plain, value
from skuwise.tests.support.pasted_commands import paste
from skuwise.tests.support.patch_cases import BATCH_SCRIPT, DEPLOYMENT, ID, MIG_STATE, accepted, kept_in, sized
from skuwise.tests.support.prometheus_engines import needed

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/patches.md"
_IB, _PLAIN = "H100-SXM5 on azure/Standard_ND96isr_H100_v5", "H100-SXM5 on azure/Standard_ND96is_H100_v5"
# By example: the action, the id, from and to, the text, dollars and GPU-hours a month.
EXAMPLES = {
    "kubernetes": (
        "move-sku", ID, f"16 x {_IB}", f"16 x {_PLAIN}",
        "The same H100-SXM5 on azure/Standard_ND96is_H100_v5, without the fabric, runs the work at the same speed. "
        "Saves $14,355/month, at list price, 2026-09-19.", 14_355.0, 0.0,
    ),
    "slurm": (
        "reduce-gpus", "r-ba9876543210", f"16 x {_IB}", f"8 x {_IB}",
        "The training chat (nlp) needs 8 of its 16 H100-SXM5. This frees 8 GPUs for other work.", None, 5_840.0,
    ),
    "nvidia": (
        "mig-slice", "r-aaaabbbbcccc", f"2 x {_IB}", f"1 x {_IB}",
        "The online inference service chat (nlp) fits on 1g.10gb instead of each of its 2 GPUs (7 instances per GPU).",
        None, 1_251.0,
    ),
}  # fmt: skip


def block(mark: str) -> str:
    found = re.search(rf"^<!-- {mark} -->\n```\w*\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, mark
    return found[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for action, id_, source, target, text, usd, hours in EXAMPLES.values():
        interval = Interval(usd, usd, usd) if usd is not None else None
        entry = accepted(action, text=text, saving_usd_per_month=interval, time_ratio=Interval(1.0, 1.0, 1.0))
        told = replace(
            entry.proposal, id=id_, source_config=source, target_config=target, saving_usd_per_month=usd,
            freed_gpu_hours_per_month=hours, realisation="cash-now" if usd else "capacity-freed",
        )  # fmt: skip
        kept_in(tmp_path / "ledger.db", replace(entry, proposal=told))
    (tmp_path / "deployment.yaml").write_text(sized(DEPLOYMENT, 2, 8))
    (tmp_path / "job.sh").write_text(BATCH_SCRIPT)
    (tmp_path / "mig-state.yaml").write_text(MIG_STATE)
    return tmp_path


def shown(name: str, folder: Path) -> str:
    """What an example prints; written into the page where RENEW_GOLDEN is set."""
    for command in block(f"example: {name}").splitlines():
        given = " --ledger ledger.db --for" if command.startswith("skuwise ") else " --for"
        done = paste(command.replace(" --for", given, 1), folder)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    file = {"kubernetes": "moved/patch-deployment-chat.yaml", "slurm": "reduce.diff", "nvidia": "mig-parted.yaml"}[name]
    text = (folder / file).read_text().replace(str(folder), "/home/ann")
    if os.environ.get("RENEW_GOLDEN"):
        form = re.compile(rf"(^<!-- output: {name} -->\n```\w*\n).*?(^```)", re.MULTILINE | re.DOTALL)
        PAGE.write_text(form.sub(lambda found: found[1] + text + found[2], PAGE.read_text()))
    return text


@pytest.mark.slow
def test_the_service_moves_and_returns(folder: Path) -> None:
    needed("kubectl")
    assert shown("kubernetes", folder) == block("output: kubernetes")
    after = value((folder / "after.yaml").read_text())
    assert "Standard_ND96is_H100_v5" in str(after["spec"]["template"]["spec"]["affinity"])
    assert value((folder / "undone.yaml").read_text()) == plain(sized(DEPLOYMENT, 2, 8), folder, "strategic")


@pytest.mark.slow
def test_the_script_asks_for_half_and_returns_byte_by_byte(folder: Path) -> None:
    needed("patch")
    assert shown("slurm", folder) == block("output: slurm")
    assert (folder / "changed.sh").read_text() == BATCH_SCRIPT


@pytest.mark.slow
def test_one_gpu_is_divided_and_returns_and_those_of_others_stay(folder: Path) -> None:
    assert shown("nvidia", folder) == block("output: nvidia")
    undo = yaml.safe_load((folder / "undo.yaml").read_text())
    assert undo["mig-configs"] == {"r-aaaabbbbcccc-1-undo": [{"devices": [2], "mig-enabled": False, "mig-devices": {}}]}


def test_the_table_has_a_cell_for_every_patch_that_there_is() -> None:
    cells: dict[str, set[str]] = {}
    for line in PAGE.read_text().splitlines():
        found = re.match(r"\| ([a-z]+(?:-[a-z]+)*) \|(.*)\|$", line)
        if found is not None and found[1] != "action":
            told = [cell.strip() for cell in found[2].split("|")]
            cells[found[1]] = {target for target, cell in zip(TARGETS, told, strict=False) if cell}
    there = {action: set(targets) for action, targets in PATCHES.items()}
    assert {action: own for action, own in cells.items() if action in there} == there
    assert set(there) == set(Action.__args__) - {"fix-first"}
