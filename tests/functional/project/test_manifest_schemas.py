"""The manifests against Kubernetes' own schemas, of its oldest and newest version at hand.

The schemas are 70 MB, so they are no part of the development environment: the test fetches them into one of its own.
"""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MANIFESTS = [
    ROOT / "deploy/kubernetes" / name for name in ("namespace.yaml", "daemonset.yaml", "metrics.yaml", "watch.yaml")
]
SCHEMAS = ROOT / "requirements/schemas.lock"


def validate(validator: Path, version: str, *files: Path) -> subprocess.CompletedProcess[str]:
    command = [str(validator), "--strict", "-k", version, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_every_manifest_is_what_kubernetes_takes(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    fetch = [tmp_path / "venv/bin/pip", "install", "--quiet", "--require-hashes", "-r", SCHEMAS]
    fetched = subprocess.run(fetch, capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        pytest.skip(f"the schemas cannot be fetched: {fetched.stderr.strip()[-300:]}")
    validator = tmp_path / "venv/bin/kubernetes-validate"
    for version in ("1.25", "1.37"):
        done = validate(validator, version, *MANIFESTS)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (done.stdout + done.stderr).count("passed for resource") == 8
    wrong = tmp_path / "daemonset.yaml"
    wrong.write_text(MANIFESTS[1].read_text().replace("hostPID:", "hostPid:"))
    done = validate(validator, "1.37", wrong)
    assert done.returncode != 0 and "hostPid" in done.stdout + done.stderr
