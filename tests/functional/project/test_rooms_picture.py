"""The picture of docs/architecture.md: of today's imports, every arrow down, and it fails where there is a circle."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def rooms() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(ROOT / "docs/tools/rooms.py")))


def arrows(svg: str) -> set[tuple[str, str]]:
    return set(re.findall(r'data-from="([^"]+)" data-to="([^"]+)"', svg))


def test_the_picture_is_of_todays_rooms_and_imports(rooms: SimpleNamespace) -> None:
    kept, drawn = (ROOT / "docs/architecture.svg").read_text(), rooms.draw(ROOT)
    assert arrows(kept) == arrows(drawn), "make picture draws it anew"
    assert len(arrows(drawn)) > 30
    named = re.findall(r'<text class="t"[^>]*>([^<]+)<', drawn)
    assert named == re.findall(r'<text class="t"[^>]*>([^<]+)<', kept)
    for begin_y, end_y in re.findall(r'd="M-?\d+ (\d+) Q-?\d+ \d+ -?\d+ (\d+)"', drawn):
        assert int(begin_y) < int(end_y)


def test_rooms_stand_above_what_they_import_and_long_ways_round_are_left_out(rooms: SimpleNamespace) -> None:
    arrows = {"a": frozenset("bc"), "b": frozenset("c"), "c": frozenset[str]()}
    assert rooms.heights(arrows) == {"a": 2, "b": 1, "c": 0}
    assert rooms.shown(arrows) == {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset()}


def test_a_circle_is_no_picture(rooms: SimpleNamespace) -> None:
    with pytest.raises(rooms.CircleError, match="a > b > a"):
        rooms.heights({"a": frozenset("b"), "b": frozenset("a")})
