"""The walls of the house: what the agent may import, what a wheel holds, where errors come out."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from skuwise.tests.support.shared_artifacts import wheel

ROOT = Path(__file__).parents[3]
FLOORS = ("agent", "advisor", "rules", "tui")


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("from skuwise.__main__ import main\nmain(['--help'])", ("skuwise.agent", "skuwise.advisor")),
        ("import skuwise.tui.app, skuwise.tui.data.loaders", ("numpy", "pandas", "yaml")),
    ],
)
def test_the_help_and_the_first_page_need_nothing_heavy(code: str, heavy: tuple[str, ...]) -> None:
    done = python(f"import sys\n{code}\nprint([m for m in sys.modules if m.startswith({heavy})], file=sys.stderr)")
    assert done.stderr.strip() == "[]"


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


COMMAND = f"{sys.executable} -m skuwise"


def shell(line: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert "unexpected" not in done.stderr and "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    return done


@pytest.mark.parametrize(
    "line",
    [
        f"{COMMAND} --version > /dev/full",
        f"{COMMAND} rules --help > /dev/full",
        f"{COMMAND} --help >&-",
        f"{COMMAND} skus list > /dev/full",
    ],
)
def test_output_that_cannot_be_written_is_a_sentence_and_no_success(tmp_path: Path, line: str) -> None:
    done = shell(line, tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("skuwise: Standard output cannot be written: "), done.stderr
    assert len(done.stderr.splitlines()) == 1
