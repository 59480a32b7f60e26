"""The release workflow, the manifests and the version name the same images; a job may do what it needs."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from skuwise import __version__

ROOT = Path(__file__).parents[3]
WHOLE: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
JOBS = WHOLE["jobs"]
STEPS = [step for job in JOBS.values() for step in job["steps"]]
SCRIPTS = [step["run"] for step in STEPS if "run" in step]
IMAGES = ("skuwise-agent", "skuwise-advisor")


def test_the_manifests_name_the_images_that_the_workflow_publishes() -> None:
    source = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
    registry = f"ghcr.io/{source.removeprefix('https://github.com/').rpartition('/')[0]}"
    manifests = "".join(path.read_text() for path in (ROOT / "deploy/kubernetes").glob("*.yaml"))
    named = re.findall(r"^ +image: (.*)$", manifests, re.MULTILINE)
    assert sorted(named) == sorted(f"{registry}/{name}:{__version__}" for name in IMAGES)
    (push,) = (text for text in SCRIPTS if "skopeo" in text)
    assert f"for name in {' '.join(IMAGES)}; do" in push and f"image={registry}/$name\n" in push
    assert all(f"-t {name}:$(VERSION) ." in (ROOT / "Makefile").read_text() for name in IMAGES)
    for package in ("debian/control", "skuwise-agent.spec"):
        assert source in (ROOT / "deploy/packages" / package).read_text()


@pytest.mark.parametrize(
    ("job", "permissions"),
    [
        ("build", {"contents": "read"}),
        ("pypi", {"id-token": "write"}),
        ("images", {"id-token": "write", "packages": "write"}),
        ("publish", {"contents": "write", "id-token": "write"}),
    ],
)
def test_a_job_may_do_what_it_needs(job: str, permissions: dict[str, str]) -> None:
    assert JOBS.keys() == {"build", "pypi", "images", "publish"}
    assert JOBS[job].get("permissions", WHOLE["permissions"]) == permissions
    # A trial by hand publishes nothing.
    assert (JOBS[job].get("if") == "github.ref_type == 'tag'") == (job != "build")


def test_actions_are_named_by_major_version_or_commit_and_commands_are_targets() -> None:
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert len(used) >= 8 and not [name for name in used if not re.search(r"@((release/)?v\d+|[0-9a-f]{40})$", name)]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    called = re.findall(r"^make ([a-z-]+)", "\n".join(SCRIPTS), re.MULTILINE)
    assert called == ["check", "release"] and set(called) <= set(targets)
    # Text of the event enters a script by a variable, never by ${{ }}, which would be code.
    assert not [text for text in SCRIPTS if "${{" in text]
