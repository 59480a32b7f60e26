"""The self-contained build, run with an empty environment, and the bill of materials of the project's own lock."""

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from packaging.markers import Marker
from skuwise import __version__
from skuwise.deploy.sbom import locked  # pyright: ignore[reportMissingImports] - not in the wheel
from skuwise.tests.integration.agent.jobs.test_podresources import KubeletServer
from skuwise.tests.nvmlstub import stub_env
from skuwise.tests.support.running_agent import until
from skuwise.tests.support.shared_artifacts import locked_environment, once, standalone
from skuwise.tests.support.stored_rows import rows

ROOT = Path(__file__).parents[3]
GPUS = "[gpu 0-1]\nname = NVIDIA H100 80GB HBM3\ngpu_util = 0.5\nsm_active = 0.25\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return standalone(tmp_path_factory)


@pytest.fixture(scope="module")
def program(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    (unpacked,) = once(tmp_path_factory, "standalone-node", lambda folder: unpack(built, folder)).iterdir()
    return unpacked / "skuwise"


def unpack(built: Path, folder: Path) -> None:
    assert re.search(r"packed [\d.]+ MB, unpacked [\d.]+ MB\nstarts in [\d.]+ s", (built / "log").read_text())
    (archive,) = built.glob("skuwise-agent-*-linux-*-glibc2.*.tar.gz")
    with tarfile.open(archive) as tar:
        assert {member.uid for member in tar} == {0}
        assert not [member.name for member in tar if member.mode & (stat.S_IWGRP | stat.S_IWOTH)]
        tar.extractall(folder, filter="data")


def test_beside_it_lie_its_checksum_and_the_hash_of_everything_in_it(built: Path, program: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    check = ["sh", "-c", "sha256sum --check *.sha256"]
    assert subprocess.run(check, cwd=built, capture_output=True, check=False).returncode == 0
    bill = json.loads((built / f"{archive.name}.cdx.json").read_text())
    whole = bill["metadata"]["component"]["hashes"][0]["content"]
    assert whole == hashlib.sha256(archive.read_bytes()).hexdigest()
    hashes = {
        package["name"]: package["hashes"][0]["content"] for package in bill["components"] if package["type"] == "file"
    }
    unpacked = [path for path in program.parent.rglob("*") if path.is_file() and not path.is_symlink()]
    assert hashes == {
        str(path.relative_to(program.parent)): hashlib.sha256(path.read_bytes()).hexdigest() for path in unpacked
    }
    packages = {package["name"] for package in bill["components"] if package["type"] == "library"}
    assert packages == {
        "click", "grpcio", "msgspec", "nvidia-ml-py", "prometheus-client", "psutil", "pyyaml", "typing-extensions",
    }  # fmt: skip


def run(program: Path, *arguments: str, env: dict[str, str] | None = None, text: str = "") -> str:
    """Its output. Nothing of this process's environment is there: no PATH, no PYTHONPATH."""
    done = subprocess.run(
        [str(program), *arguments], env=env or {}, input=text, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout


def test_it_holds_the_agent_and_nothing_of_the_advisor(program: Path) -> None:
    shown = run(program, "--help")
    assert "  agent " in shown and "advise" not in shown
    refused = subprocess.run([str(program), "advise"], env={}, capture_output=True, text=True, check=False)
    assert (refused.returncode, "Traceback" in refused.stderr) == (2, False)
    names = {path.name for path in (program.parent / "lib").rglob("*")}
    assert not names & {"advisor", "numpy", "pandas", "ssl.py"}
    assert not [name for name in names if name.startswith(("libssl", "libcrypto"))]
    assert list((program.parent / "licences").glob("psutil-*"))
    assert "held-idle" in run(program, "rules", "list")


def test_it_samples_and_its_children_roll_up_and_ask_the_kubelet(program: Path, tmp_path: Path) -> None:
    kubelet = KubeletServer(tmp_path / "kubelet.sock")
    env = stub_env(tmp_path, GPUS, base={}) | {"SKUWISE_POD_RESOURCES": str(kubelet.path)}
    uuid = json.loads(run(program, "agent", "once", "--format", "json", env=env))["gpus"][0]["gpu_uuid"]
    kubelet.pods(("llama-0", (uuid,)))
    database = tmp_path / "node.db"
    agent = subprocess.Popen([str(program), "agent", "run", "--db", str(database)], env=env, stderr=subprocess.PIPE)
    try:
        until(lambda: database.exists() and bool(rows(database, "SELECT 1 FROM gpu_samples LIMIT 1")))
        assert "sampling" not in run(program, "agent", "status", "--db", str(database))
        until(lambda: bool(rows(database, "SELECT 1 FROM workload_gpus WHERE basis = 'allocation'")))
    finally:
        agent.terminate()
        said = agent.communicate(timeout=60)[1].decode()
        kubelet.stop()
    assert agent.returncode == 0, said
    assert "late" not in said  # what the agent says of a rollup that failed
    (workload,) = rows(database, "SELECT scheduler, namespace, pod FROM workloads")
    assert workload == ("kubernetes", "ml", "llama-0")
    # The last rollups are a child's, minutes and hours alike.
    assert rows(database, "SELECT DISTINCT round(sm_active_mean, 2) FROM gpu_minutes") == [(0.25,)]
    assert rows(database, "SELECT count(DISTINCT gpu_uuid) FROM gpu_hours") == [(2,)]
    run(program, "-m", "skuwise.agent.store.retention", str(database))


def test_only_its_own_modules_are_run(program: Path) -> None:
    assert run(program, "-m", "skuwise", "--version") == run(program, "--version")
    done = subprocess.run([str(program), "-m", "http.server"], env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, "Unknown option '-m'" in done.stderr) == (2, True)


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


def test_every_package_of_the_lock_is_in_it_with_its_hashes_and_license_and_no_other(
    tool: Path, tmp_path: Path
) -> None:
    env = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    out, lock = tmp_path / "all.cdx.json", ROOT / "requirements/all.lock"
    command = [tool, ROOT / "deploy/sbom.py", "--python", sys.executable, "--lock", lock, "--name", "skuwise"]
    done = subprocess.run([*command, "--out", out], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    bill = json.loads(out.read_text())
    valid = subprocess.run([tool, "-c", VALIDATE, out], stderr=subprocess.PIPE, check=False)
    assert valid.returncode == 0, valid.stderr
    expected = {
        entry.name: entry
        for entry in locked(lock.read_text())
        if entry.marker is None or Marker(entry.marker).evaluate()
    }
    listed = {package["name"]: package for package in bill["components"] if package["type"] == "library"}
    assert listed.keys() == expected.keys() and len(listed) >= 50
    for name, package in listed.items():
        (files,) = (link for link in package["externalReferences"] if link["type"] == "distribution")
        assert {each["content"] for each in files["hashes"]} == set(expected[name].sha256)
        assert package["purl"] == f"pkg:pypi/{name}@{package['version']}" and package["licenses"], name
        assert package["version"] == expected[name].version
    root = bill["metadata"]["component"]
    assert (root["name"], root["version"]) == ("skuwise", __version__)
    asks = {component["ref"]: component.get("dependsOn", []) for component in bill["dependencies"]}
    assert {"pkg:pypi/" + name for name in ("numpy", "textual", "grpcio")} <= {
        ref.partition("@")[0] for ref in asks[root["bom-ref"]]
    }
    reached, todo = set[str](), [root["bom-ref"]]
    while todo:
        reached.add(ref := todo.pop())
        todo += set(asks[ref]) - reached
    assert reached == asks.keys(), "nothing asks for these"
