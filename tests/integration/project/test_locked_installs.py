"""The bill of materials of what the project's own lock installs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from skuwise import __version__
from skuwise.deploy.sbom import locked  # pyright: ignore[reportMissingImports] - not in the wheel
from skuwise.tests.support.shared_artifacts import locked_environment, once

ROOT = Path(__file__).parents[3]

VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
sys.exit(0 if error is None else str(error)[:500])
"""


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the locked cyclonedx-py."""
    made = once(tmp_path_factory, "sbom", lambda folder: locked_environment(folder, ROOT / "requirements/sbom.lock"))
    return made / "venv/bin/python"


def written(tool: Path, out: Path, lock: str) -> dict[str, Any]:
    env = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    command = [tool, ROOT / "deploy/sbom.py", "--python", sys.executable, "--lock", ROOT / "requirements" / lock]
    done = subprocess.run(
        [*command, "--name", "skuwise", "--out", out], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text())


def packages(bill: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in bill["components"] if one["type"] == "library"}


def test_every_package_of_the_lock_is_in_it_with_its_hashes_and_license_and_no_other(
    tool: Path, tmp_path: Path
) -> None:
    bill = written(tool, tmp_path / "all.cdx.json", "all.lock")
    valid = subprocess.run([tool, "-c", VALIDATE, tmp_path / "all.cdx.json"], stderr=subprocess.PIPE, check=False)
    assert valid.returncode == 0, valid.stderr
    lock = locked((ROOT / "requirements/all.lock").read_text())
    expected = {one.name: one for one in lock if one.marker is None or Marker(one.marker).evaluate()}
    found = packages(bill)
    assert found.keys() == expected.keys() and len(found) >= 50
    for name, one in found.items():
        (files,) = (link for link in one["externalReferences"] if link["type"] == "distribution")
        assert {each["content"] for each in files["hashes"]} == set(expected[name].sha256)
        assert (one["version"], one["purl"]) == (expected[name].version, f"pkg:pypi/{name}@{expected[name].version}")
        assert one["licenses"], name
    root = bill["metadata"]["component"]
    assert (root["name"], root["version"]) == ("skuwise", __version__)
    asks = {one["ref"]: one.get("dependsOn", []) for one in bill["dependencies"]}
    assert {"pkg:pypi/" + name for name in ("numpy", "textual", "grpcio")} <= {
        ref.partition("@")[0] for ref in asks[root["bom-ref"]]
    }
    reached, todo = set[str](), [root["bom-ref"]]
    while todo:
        reached.add(ref := todo.pop())
        todo += set(asks[ref]) - reached
    assert reached == asks.keys(), "nothing asks for these"


def test_what_is_not_installed_as_locked_is_named(tool: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.lock"
    other.write_text(
        re.sub(r"^psutil==\S+", "psutil==1.2.3", (ROOT / "requirements/agent.lock").read_text(), flags=re.M)
    )
    with pytest.raises(AssertionError, match=r"not installed as locked: pkg:pypi/psutil@1\.2\.3"):
        written(tool, tmp_path / "bill.json", str(other))
