"""deploy/slurm/epilog-slurmctld.sh, with stand-ins for squeue, scontrol and skuwise: hostile values, exit 0."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "deploy/slurm/epilog-slurmctld.sh"
CARD = "SKW1:w=1"
HOSTILE = "$(touch pwned);`touch pwned`;\"'\n\x1b[2J --existing=x"

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")


class Controller:
    """A folder with stand-ins that note how they are called, one argument a line."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir()
        self.conf = folder / "card.conf"
        self.put("squeue", f"cat {folder}/comment")
        self.put("skuwise", f"echo '{CARD}'")
        self.put("scontrol", ":")
        (folder / "comment").write_text("\n")

    def put(self, name: str, then: str) -> None:
        file = self.bin / name
        file.write_text(
            f'#!/bin/bash\nfor one in "$@"; do printf "%q\\n" "$one"; done >>{self.folder}/{name}.calls\n{then}\n'
        )
        file.chmod(0o755)

    def calls(self, name: str) -> list[str]:
        file = self.folder / f"{name}.calls"
        return file.read_text().splitlines() if file.exists() else []

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        own = {
            "SKUWISE_EPILOG_PATH": f"{self.bin}:/usr/bin:/bin", "SKUWISE_EPILOG_CONFIG": str(self.conf),
            "SLURM_JOB_ID": "4711",
        }  # fmt: skip
        return subprocess.run(
            ["bash", str(SCRIPT), *arguments], env={**own, **environ}, cwd=self.folder, capture_output=True, text=True,
            check=False, timeout=30,
        )  # fmt: skip


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    made = Controller(tmp_path)
    made.conf.write_text("SOURCE=/var/lib/skuwise\nDELAY_SECONDS=0\nTIMEOUT_SECONDS=5\n")
    return made


def test_the_card_is_written_for_the_job(controller: Controller) -> None:
    assert controller.run("--now").returncode == 0
    assert controller.calls("skuwise") == [
        "job", "4711", "--db", "/var/lib/skuwise", "--format", "admin-comment", "--existing=",
    ]  # fmt: skip
    assert controller.calls("scontrol") == ["update", "JobId=4711", f"AdminComment={CARD}"]


@pytest.mark.parametrize("environ", [{"SLURM_JOB_ID": HOSTILE}, {"SLURM_JOB_ID": ""}, {"SLURM_JOB_ID": "4711 --all"}])
def test_what_is_no_job_id_is_no_job(controller: Controller, environ: dict[str, str]) -> None:
    assert controller.run("--now", **environ).returncode == 0
    assert controller.calls("skuwise") == controller.calls("scontrol") == controller.calls("squeue") == []


@pytest.mark.parametrize("then", ["exit 3", "echo 'no card'", "printf 'SKW1:a\\nSKW1:b\\n'", "sleep 9"])
def test_without_a_card_nothing_is_changed(controller: Controller, then: str) -> None:
    controller.conf.write_text("SOURCE=/db\nDELAY_SECONDS=0\nTIMEOUT_SECONDS=1\n")
    controller.put("skuwise", then)
    assert controller.run("--now").returncode == 0
    assert controller.calls("scontrol") == []


@pytest.mark.parametrize("conf", ["", "SOURCE=/db\nSOURCE_FLAG=--rules\n"])
def test_without_settings_it_does_nothing(controller: Controller, conf: str) -> None:
    controller.conf.write_text(conf)
    assert controller.run("--now").returncode == 0 and controller.calls("skuwise") == []
