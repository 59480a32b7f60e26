"""The packages, installed, upgraded and removed: a Debian with systemd and the stub driver, and without Python.

Sizes and times are printed (``-s``). Skipped, with the reason, where `machine` says what it lacks.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from skuwise.agent.service.install import MARK
from skuwise.tests.support.shared_artifacts import PROJECT, standalone
from skuwise.tests.system import machine as debian

pytestmark = [pytest.mark.system]

DROP_IN = """
[Service]
Environment=LD_LIBRARY_PATH=/opt/nvml SKUWISE_NVML_SCENARIO=/opt/nvml/scenario
"""
UNIT = "skuwise-agent.service"
EARLIER_UNIT, SETTINGS = f"/etc/systemd/system/{UNIT}", "/etc/skuwise/skuwise.toml"
MOST_MEGABYTES = 60


@dataclass(frozen=True)
class Kind:
    """The commands of one package manager, and whether it starts the service by itself."""

    name: str
    install: str
    upgrade: str
    remove: str
    starts: bool


KINDS = (
    Kind("deb", "dpkg -i", "dpkg -i", "dpkg -r skuwise-agent", True),
    # Debian's rpm has no database of what dpkg installed.
    Kind("rpm", "rpm --force-debian --nodeps -i", "rpm --force-debian --nodeps -U", "rpm -e skuwise-agent", False),
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[debian.Machine]:
    debian.skip_without(*debian.BOOT, "rpmbuild", "dpkg-deb")

    def prepare(root: Path) -> None:
        debian.put_driver(root)
        (root / "opt/nvml/scenario").write_text("[gpu 0-1]\nname = NVIDIA H100 80GB HBM3\ngpu_util = 0.87\n")
        for program in (root / "usr/bin").glob("python3*"):
            program.unlink()
        drop_in = root / f"etc/systemd/system/{UNIT}.d/stub.conf"
        drop_in.parent.mkdir()
        drop_in.write_text(DROP_IN)
        (archive,) = standalone(tmp_path_factory).glob("*.tar.gz")
        for release in ("1", "2"):
            (root / "opt" / release).mkdir()
            command = [sys.executable, PROJECT / "deploy/packages/build.py", archive, "--level", "0"]
            done = subprocess.run(
                [*command, "--release", release, "--out", root / "opt" / release], capture_output=True, text=True,
                check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            print(done.stdout)  # noqa: T201 - sizes

    with debian.booted(tmp_path_factory, prepare) as booted:
        yield booted


def test_install_upgrade_and_removal_by_both_package_managers(machine: debian.Machine) -> None:
    for kind in KINDS:
        lives_through(kind, machine)
    assert "cluster" in machine.run("cat", f"{SETTINGS}.rpmsave")


def lives_through(kind: Kind, machine: debian.Machine) -> None:
    def package(release: str) -> str:
        (path,) = machine.inside(f"/opt/{release}").glob(f"*.{kind.name}")
        assert path.stat().st_size < MOST_MEGABYTES * 1e6
        return f"/opt/{release}/{path.name}"

    # The unit of an earlier installation would hide the package's.
    machine.inside(EARLIER_UNIT).write_text(f"{MARK}\n")
    refused = machine.run("sh", "-c", f"{kind.install} {package('1')} 2>&1", check=False)
    assert "skuwise agent uninstall" in refused and not machine.inside("/usr/bin/skuwise").is_symlink()
    machine.inside(EARLIER_UNIT).unlink()

    newest = machine.rows("SELECT max(ts) FROM gpu_samples")[0][0] if machine.inside(debian.DATABASE).exists() else 0
    began = time.monotonic()
    machine.run("sh", "-c", f"{kind.install} {package('1')}")
    installed = time.monotonic()
    assert machine.run("systemctl", "is-enabled", UNIT) == "enabled"
    assert machine.shows("ActiveState") == ("active" if kind.starts else "inactive")
    machine.run("systemctl", "start", UNIT)
    debian.until(lambda: bool(machine.rows(f"SELECT 1 FROM gpu_samples WHERE ts > {newest} AND gpu_util > 0.86")))
    print(f"{kind.name}: {installed - began:.1f} s to install, {time.monotonic() - began:.1f} s to the first row")  # noqa: T201
    assert machine.shows("FragmentPath").endswith(f"/lib/systemd/system/{UNIT}")
    assert "reading" in machine.run("skuwise", "agent", "status")
    assert machine.run("stat", "-c", "%U %a", debian.STATE) == "skuwise 750"
    assert "exists and was not written" in machine.run("sh", "-c", "skuwise agent install 2>&1", check=False)
    machine.run("systemctl", "start", "skuwise-environ.service", "skuwise-snapshot.service")
    assert machine.run("systemctl", "is-active", "skuwise-environ.service") == "active"

    # An upgrade restarts the service, and keeps the rows and the site's settings.
    with machine.inside(SETTINGS).open("a") as settings:
        settings.write('cluster = "train-1"\n')
    ((before,),) = machine.rows("SELECT max(ts) FROM gpu_samples")
    agent = machine.shows("MainPID")
    machine.run("sh", "-c", f"{kind.upgrade} {package('2')}")
    debian.until(lambda: bool(machine.rows(f"SELECT 1 FROM gpu_samples WHERE ts > {before} + 2")))
    assert machine.shows("MainPID") != agent
    assert machine.rows(f"SELECT 1 FROM gpu_samples WHERE ts = {before}")
    assert machine.rows("SELECT 1 FROM nodes WHERE cluster = 'train-1'")

    # Removal stops it and leaves the database.
    machine.run("sh", "-c", kind.remove)
    assert machine.run("systemctl", "is-active", UNIT, "skuwise-environ.service", check=False) == "inactive\ninactive"
    assert not machine.inside("/usr/lib/skuwise-agent").exists()
    assert machine.rows("PRAGMA integrity_check") == [("ok",)] and machine.rows("SELECT 1 FROM gpu_samples")
    if kind.name == "deb":
        assert machine.inside(SETTINGS).exists()
        assert "The database stays" in machine.run("sh", "-c", "dpkg -P skuwise-agent")
        assert not machine.inside(SETTINGS).exists()
        assert machine.inside(debian.DATABASE).exists()
