"""What a release hands out: the source distribution runs under uvx, the scripts pass shellcheck."""

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml
from skuwise.tests.support.shared_artifacts import PROJECT, wheel

SCRIPTS = [*(PROJECT / "deploy/recipes").glob("*.sh"), *(PROJECT / "deploy/packages").glob("*.sh")]
SCRIPTS += [path for path in (PROJECT / "deploy/packages/debian").iterdir() if path.name != "control"]


def test_uvx_runs_the_demo_from_a_folder_with_the_extra_that_it_names(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (source,) = wheel(tmp_path_factory).parent.glob("*.tar.gz")
    with tarfile.open(source) as tar:
        tar.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    uvx = str(Path(sys.executable).with_name("uvx"))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        return subprocess.run([uvx, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    refused = run("--from", str(folder), "skuwise", "demo")
    if "Failed to fetch" in refused.stderr:
        pytest.skip(f"uv has no index: {refused.stderr[-300:]}")
    # The base package is the agent alone. The remedy is the command of the documentation.
    command, *words = shlex.split(refused.stderr.partition("Install it: ")[2])
    assert (refused.returncode, command, words) == (1, "uvx", ["--from", f"{folder}[advisor]", "skuwise", "demo"])
    done = run(*words, "--dir", str(tmp_path / "demo"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert "recoverable" in done.stdout and (tmp_path / "demo/fleet.db").exists()


def test_the_shipped_scripts_and_those_of_the_workflow_pass_shellcheck(tmp_path: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    jobs = yaml.safe_load((PROJECT / ".github/workflows/release.yml").read_text())["jobs"]
    steps = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    for number, text in enumerate(steps):
        (tmp_path / f"{number}.sh").write_text(f"#!/bin/bash -e\n{text}\n")
    scripts = [*SCRIPTS, *tmp_path.iterdir()]
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True, check=False)
    assert len(scripts) > 10 and done.returncode == 0, done.stdout
