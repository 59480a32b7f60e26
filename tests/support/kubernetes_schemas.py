"""Kubernetes' own schemas, 70 MB: fetched into an environment of their own, which is no part of the development one."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

import pytest

_SCHEMAS = Path(__file__).parents[2] / "requirements/schemas.lock"


@pytest.fixture(scope="session")
def validator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that validates; the test is skipped where the schemas cannot be fetched."""
    folder = tmp_path_factory.mktemp("schemas")
    venv.create(folder / "venv", with_pip=True)
    fetch = [folder / "venv/bin/pip", "install", "--quiet", "--require-hashes", "-r", _SCHEMAS]
    fetched = subprocess.run(fetch, capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        pytest.skip(f"the schemas cannot be fetched: {fetched.stderr.strip()[-300:]}")
    return folder / "venv/bin/kubernetes-validate"


def validate(validator: Path, version: str, *files: Path) -> subprocess.CompletedProcess[str]:
    command = [str(validator), "--strict", "-k", version, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
