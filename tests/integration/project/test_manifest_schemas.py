"""The manifests against Kubernetes' own schemas, of its oldest and newest version at hand."""

import subprocess
from pathlib import Path

import pytest
from skuwise.tests.support.shared_artifacts import locked_environment

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def validator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that validates."""
    made = locked_environment(tmp_path_factory.mktemp("schemas"), ROOT / "requirements/schemas.lock")
    return made / "kubernetes-validate"


def validate(validator: Path, version: str, *files: Path) -> subprocess.CompletedProcess[str]:
    command = [str(validator), "--strict", "-k", version, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


MANIFESTS = [
    ROOT / "deploy/kubernetes" / name for name in ("namespace.yaml", "daemonset.yaml", "metrics.yaml", "watch.yaml")
]


def test_every_manifest_is_what_kubernetes_takes(tmp_path: Path, validator: Path) -> None:
    for version in ("1.25", "1.37"):
        done = validate(validator, version, *MANIFESTS)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (done.stdout + done.stderr).count("passed for resource") == 8
    wrong = tmp_path / "daemonset.yaml"
    wrong.write_text(MANIFESTS[1].read_text().replace("hostPID:", "hostPid:"))
    done = validate(validator, "1.37", wrong)
    assert done.returncode != 0 and "hostPid" in done.stdout + done.stderr
