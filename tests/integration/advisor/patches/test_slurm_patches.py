"""Patches of batch scripts by the real patch, undone byte by byte."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from skuwise.tests.support.patch_cases import BATCH_SCRIPT, ONE_GPU_SCRIPT, patch_of
from skuwise.tests.support.prometheus_engines import needed


def applied(text: bytes, change: str, folder: Path) -> bytes:
    """A file after the real ``patch``."""
    needed("patch")
    file, diff = folder / "file", folder / "change.diff"
    file.write_bytes(text)
    diff.write_bytes(b"# head, which patch skips\n" + change.encode())
    done = subprocess.run(["patch", file, diff], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "fuzz" not in done.stdout and "offset" not in done.stdout, done.stdout + done.stderr
    return file.read_bytes()


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("action", "asked", "script", "wanted"),
    [
        ("move-sku", {"feature": "h100"}, BATCH_SCRIPT, "#SBATCH --constraint=h100"),
        ("swap-placement", {"partition": "plain"}, BATCH_SCRIPT, "#SBATCH -p plain --nodes=2"),
        ("reduce-gpus", {}, BATCH_SCRIPT, "#SBATCH -p train --nodes=1"),
        ("mig-slice", {}, ONE_GPU_SCRIPT, "#SBATCH --gres=gpu:1g.10gb:1"),
        ("lower-clock", {}, BATCH_SCRIPT, "#SBATCH --gpu-freq=1455"),
        ("rest-clocks", {}, BATCH_SCRIPT, "export CUDA_DISABLE_PERF_BOOST=1"),
    ],
)
def test_a_batch_script_is_changed_and_undone(
    action: str, asked: dict, script: str, wanted: str, newline: str, tmp_path: Path
) -> None:
    text = script.replace("\n", newline).encode()
    (part,) = patch_of(action, "slurm", ("job.sh", text.decode()), **asked).parts
    after = applied(text, part.patch.text, tmp_path)
    lines, before = after.decode().split(newline), text.decode().split(newline)
    assert wanted in lines and len(set(lines) ^ set(before)) <= 2
    assert applied(after, part.undo.text, tmp_path) == text
