"""The walls of the house: what the agent may import, what a wheel holds, where errors come out."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from skuwise.__main__ import COMMANDS
from skuwise.tests.support.shared_artifacts import wheel

ROOT = Path(__file__).parents[3]
HEAVY = ("pandas", "numpy", "sklearn", "textual", "matplotlib", "rich")
FLOORS = ("agent", "advisor", "rules", "tui")


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def modules(floor: str) -> list[str]:
    found = []
    for path in sorted((ROOT / floor).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found.append("skuwise." + name.removesuffix(".__init__"))
    return found


def test_agent_and_rules_import_nothing_heavy_even_where_it_is_installed() -> None:
    names = modules("agent") + modules("rules")
    assert len(names) > 10
    code = f"import importlib, sys\nfor n in {names}: importlib.import_module(n)\n"
    done = python(code + f"print([m for m in {HEAVY} if m in sys.modules])")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_help_needs_neither_agent_nor_advisor() -> None:
    done = python(
        "import sys\nfrom skuwise.__main__ import main\nmain(['--help'])\n"
        "print([m for m in sys.modules if m.startswith(('skuwise.agent', 'skuwise.advisor'))], file=sys.stderr)"
    )
    assert "commands:" in done.stdout
    assert done.stderr.strip() == "[]"


def test_every_package_of_the_tree_is_listed_for_the_wheel() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    there = {
        "skuwise." + ".".join(p.parent.relative_to(ROOT).parts)
        for floor in FLOORS
        for p in (ROOT / floor).rglob("__init__.py")
    }
    assert there | {"skuwise"} == listed


def test_every_module_is_used_by_the_product_itself() -> None:
    """What only tests use does not stand among what is shipped."""
    sources = [path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")] + [ROOT / "__main__.py"]
    used = {name for path in sources for name in imported(path)} | {command.module for command in COMMANDS.values()}
    unused = {m for floor in FLOORS for m in modules(floor)} - used
    # What stands in these packages is found by listing them.
    found = ("skuwise.advisor.moves.kinds.", "skuwise.advisor.moves.waste.", "skuwise.advisor.render.formats.")
    unused -= {m for m in unused if m.startswith(found)}
    packages = {m for m in unused if (ROOT / Path(*m.split(".")[1:]) / "__init__.py").exists()}
    assert sorted(unused - packages) == []


def imported(path: Path) -> set[str]:
    """The modules that a file imports, and what it imports from them."""
    package = ["skuwise", *path.relative_to(ROOT).parts[:-1]]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            found |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value.lstrip(".")
            found |= {text, f"skuwise.{text}", ".".join([*package, text])}
    return found


@pytest.mark.slow
def test_the_wheel_holds_every_module_and_every_piece_of_data(tmp_path_factory: pytest.TempPathFactory) -> None:
    listing = subprocess.run(
        ["git", "ls-files", *FLOORS, "systemd"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    wanted = {f"skuwise/{line}" for line in listing.stdout.splitlines() if not line.endswith(("README.md", ".gitkeep"))}
    with zipfile.ZipFile(wheel(tmp_path_factory)) as archive:
        names = set(archive.namelist())
    assert wanted - names == set()
    assert {"skuwise/__init__.py", "skuwise/__main__.py", "skuwise/py.typed"} <= names
    assert not [name for name in names if name.startswith(("tests/", "skuwise/tests", "skuwise/benchmarks"))]


@pytest.mark.parametrize(
    ("arguments", "absent"), [(["simulate", "founding", "--db", "x.db"], "numpy"), (["demo"], "rich")]
)
def test_a_command_whose_extra_is_not_installed_names_it(tmp_path: Path, arguments: list[str], absent: str) -> None:
    code = f"import os, sys\nos.chdir({str(tmp_path)!r})\nsys.modules[{absent!r}] = None\n"
    done = python(f"{code}from skuwise.__main__ import main\nsys.exit(main({arguments}))")
    assert done.returncode == 1
    assert "-m pip install " in done.stderr and "[advisor]" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([], 2, "commands:"),
        (["nonsense"], 2, "Unknown command 'nonsense'"),
        (["--version"], 0, "skuwise "),
        (["agent"], 2, ""),
    ],
)
def test_exit_status_and_no_traceback(arguments: list[str], status: int, words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "skuwise", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
