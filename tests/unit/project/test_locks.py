"""What is installed from an index is pinned by its files' hashes; the locks fit the project and one another."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from skuwise.deploy.sbom import Locked, locked, normalized  # pyright: ignore[reportMissingImports] - not in the wheel

ROOT = Path(__file__).parents[3]
REQUIREMENTS = ROOT / "requirements"
NAMES = ("agent", "all", "build", "dev", "run", "sbom", "schemas", "standalone")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def lock(name: str) -> dict[str, Locked]:
    packages = list(locked((REQUIREMENTS / f"{name}.lock").read_text()))
    by_name = {package.name: package for package in packages}
    assert len(by_name) == len(packages)
    return by_name


def asked(*extras: str) -> dict[str, Requirement]:
    """What the project's base and these extras ask for, by name."""
    optional = PROJECT["project"]["optional-dependencies"]
    packages: dict[str, Requirement] = {}
    lines = [*PROJECT["project"]["dependencies"], *(line for extra in extras for line in optional[extra])]
    for requirement in map(Requirement, lines):
        if requirement.name == "skuwise":
            packages |= asked(*requirement.extras)
        else:
            packages[normalized(requirement.name)] = requirement
    return packages


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_holds_versions_and_hashes_and_names_no_place(name: str) -> None:
    text = (REQUIREMENTS / f"{name}.lock").read_text()
    packages = lock(name)
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    assert sum(len(package.sha256) for package in packages.values()) == sum("--hash=" in line for line in lines)
    assert all(re.match(r"\S+==\S|    --hash=sha256:", line) for line in lines)
    assert not re.search(r"://|--(extra-)?index|--find-links|file:|(^|\s)/\w", text)


@pytest.mark.parametrize(
    ("name", "extras"),
    [("dev", ("dev",)), ("all", ("all", "kubernetes")), ("run", ("all",)), ("agent", ("kubernetes",))],
)
def test_what_the_project_asks_for_is_locked_at_a_version_that_it_takes(name: str, extras: tuple[str, ...]) -> None:
    packages = lock(name)
    for package, requirement in asked(*extras).items():
        assert package in packages, f"{package} is not in {name}.lock: run make lock"
        assert requirement.specifier.contains(packages[package].version), f"{requirement}: run make lock"
    names = {*asked(*extras), *(name for package in packages.values() for name in package.wanted_by)}
    assert packages.keys() <= names | {"skuwise"} | {name for name, package in packages.items() if package.wanted_by}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "dev"])
def test_a_version_is_the_same_in_every_lock(name: str) -> None:
    dev = lock("dev")
    for package, pinned in lock(name).items():
        if package in dev:
            assert (pinned.version, pinned.sha256) == (dev[package].version, dev[package].sha256), package


def test_no_lock_is_installed_without_its_hashes() -> None:
    script = (ROOT / "deploy/setup/install.sh").read_text()
    assert 'HASHED="--require-hashes --only-binary=:all:"' in script
    assert script.count("$HASHED -r ") == script.count(" -r ") - script.count("read -r ") == 2
