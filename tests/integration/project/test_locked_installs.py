"""pip, with the project's own lock and flags, refuses a file that is not the locked one. Nothing is fetched."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from skuwise import __version__
from skuwise.deploy.sbom import locked  # pyright: ignore[reportMissingImports] - not in the wheel
from skuwise.tests.support.shared_artifacts import locked_environment, once

ROOT = Path(__file__).parents[3]
NAME, VERSION = "mdurl", "0.1.2"  # of the lock, without dependencies


def entry() -> str:
    """The lock's own lines for the package."""
    text = (ROOT / "requirements/dev.lock").read_text()
    (found,) = re.findall(rf"^{NAME}=={re.escape(VERSION)} (?:.*\n(?: .*\n)*)", text, re.MULTILINE)
    return str(found)


def offered(folder: Path) -> Path:
    """A wheel as an index, or who sits before it, would offer under that name and version."""
    about = f"{NAME}-{VERSION}.dist-info"
    files = {
        f"{NAME}/__init__.py": "raise SystemExit('someone else's code')\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = folder / f"{NAME}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{about}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"]))
    return path


def install(folder: Path, lock: str) -> subprocess.CompletedProcess[str]:
    """As the make targets do, with a folder for the index."""
    script = (ROOT / "deploy/setup/install.sh").read_text()
    (flags,) = re.findall(r'^HASHED="(.*)"$', script, re.MULTILINE)
    (folder / "lock").write_text(lock)
    pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "install", "--no-index"]
    where = ["--find-links", str(folder), "--target", str(folder / "there")]
    command = [*pip, *where, *flags.split(), "-r", str(folder / "lock")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_file_whose_hash_changed_is_not_installed(tmp_path: Path) -> None:
    offered(tmp_path)
    done = install(tmp_path, entry())
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr and NAME in done.stderr
    assert not (tmp_path / "there").exists()


def test_the_same_file_is_installed_with_its_own_hash_and_not_without_one(tmp_path: Path) -> None:
    wheel = offered(tmp_path)
    own = hashlib.sha256(wheel.read_bytes()).hexdigest()
    refused = install(tmp_path, f"{NAME}=={VERSION}\n")
    assert refused.returncode != 0 and "--require-hashes" in refused.stderr
    done = install(tmp_path, f"{NAME}=={VERSION} --hash=sha256:{own}\n")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / f"there/{NAME}/__init__.py").exists()


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
