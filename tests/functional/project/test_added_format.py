"""A format is one module: one is put beside the others, asked for, and taken away again."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.render import format_named, format_names, formats
from skuwise.advisor.render.format import Format

TOY = '''
"""The advice in as few words as there can be."""
from skuwise.advisor.render.format import Format

FORMAT = Format("text/x-toy", ".toy", lambda a, screen: f"{len(a.workloads)} workloads, {screen.width} wide\\n")
'''


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of further formats, until the test is over."""
    formats.__path__.append(str(tmp_path))
    yield tmp_path
    formats.__path__.remove(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith(f"{formats.__name__}.toy")]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("formats") / "founding.db"
    assert main(["simulate", "founding", "--db", str(path), "--days", "2", "--seed", "4"]) == 0
    return path


def test_a_module_put_there_is_a_format_and_one_taken_away_is_none(
    folder: Path, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["advise", "--db", str(database), "--format", "toy"]
    (folder / "toy.py").write_text(TOY)
    assert "toy" in format_names()
    capsys.readouterr()
    assert main(asked) == 0
    assert re.fullmatch(r"4 workloads, \d+ wide\n", capsys.readouterr().out)
    (folder / "toy.py").unlink()
    assert "toy" not in format_names()
    with pytest.raises(SystemExit) as ended:
        main(asked)
    assert ended.value.code == 2
    assert "Invalid value 'toy' for --format" in capsys.readouterr().err


def test_a_module_that_describes_no_format_is_told(folder: Path) -> None:
    (folder / "toyless.py").write_text("FORMAT = 'text/plain'\n")
    with pytest.raises(TypeError, match="toyless has no FORMAT"):
        format_named("toyless")


def test_every_format_has_all_its_parts_and_a_suffix_of_its_own() -> None:
    found = [format_named(name) for name in format_names()]
    assert all(isinstance(one, Format) and "/" in one.media_type and one.suffix[:1] == "." for one in found)
    assert len({one.suffix for one in found}) == len(found) == 5
