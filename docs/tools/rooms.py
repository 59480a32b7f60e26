"""Draws docs/architecture.svg from the imports of today: floors, their rooms, and which room imports which.

    python docs/tools/rooms.py [ROOT [FILE]]

A floor's rooms form rows: each room above those that it imports. An arrow that a longer way round already says is
left out; all arrows point down, or the picture fails. Run by `make picture`; a test draws it again.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

import grimp

FLOORS = ("tui", "advisor", "agent", "rules")
ROOM_WIDTH, ROOM_HEIGHT, GAP, ROW, MARGIN, PER_ROW = 150, 52, 14, 80, 20, 7
ABOUT_MOST = 28  # characters that a room has space for
WIDTH = 2 * MARGIN + PER_ROW * (ROOM_WIDTH + GAP) - GAP + 20
Arrows = Mapping[str, frozenset[str]]
Point = tuple[float, float]


class CircleError(ValueError):
    """Two rooms import each other, by whatever way round."""


@dataclass(frozen=True, slots=True)
class Room:
    """A folder of a floor, or a module that stands on it. `about`: the beginning of its docstring, up to a colon;
    empty: too long. `lines`: of all its modules."""

    name: str
    about: str
    lines: int
    modules: int


def rooms_of(root: Path, floor: str) -> list[Room]:
    rooms = []
    for place in sorted((root / floor).iterdir()):
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place] if place.suffix == ".py" else []
        lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
        if files and place.name != "__init__.py":
            module = place if place.is_file() else place / "__init__.py"
            docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
            about = docstring.partition(":")[0].replace("`", "")
            name = place.stem if place.is_file() else place.name
            rooms.append(Room(name, about if len(about) <= ABOUT_MOST else "", lines, len(files)))
    return rooms


def arrows_of(graph: grimp.ImportGraph, floor: str, rooms: list[Room]) -> dict[str, frozenset[str]]:
    """Which rooms of a floor each room imports, its modules taken together."""
    prefix = f"skuwise.{floor}."
    names = {room.name for room in rooms}
    arrows: dict[str, set[str]] = {name: set() for name in names}
    for module in graph.modules:
        if not module.startswith(prefix) or (importer := module.removeprefix(prefix).split(".")[0]) not in names:
            continue
        for imported in graph.find_modules_directly_imported_by(module):
            if imported.startswith(prefix) and (target := imported.removeprefix(prefix).split(".")[0]) in names:
                arrows[importer] |= {target} - {importer}
    return {name: frozenset(targets) for name, targets in arrows.items()}


def heights(arrows: Arrows) -> dict[str, int]:
    """How many rooms are below each, one under the other: its row. Raises CircleError."""
    heights: dict[str, int] = {}

    def height(name: str, above: tuple[str, ...]) -> int:
        if name in above:
            raise CircleError(" > ".join((*above[above.index(name) :], name)))
        if name not in heights:
            heights[name] = 1 + max((height(target, (*above, name)) for target in sorted(arrows[name])), default=-1)
        return heights[name]

    for name in sorted(arrows):
        height(name, ())
    return heights


def shown(arrows: Arrows) -> dict[str, frozenset[str]]:
    """The arrows without those that a longer way round already says."""

    def below(name: str) -> set[str]:
        return set(arrows[name]).union(*(below(target) for target in arrows[name]))

    return {name: frozenset(t for t in to if not any(t in below(o) for o in to - {t})) for name, to in arrows.items()}


def draw(root: Path) -> str:
    """The picture as SVG. Raises CircleError where rooms of a floor import each other in a circle."""
    graph = grimp.build_graph("skuwise", cache_dir=None)
    parts: list[str] = []
    top = MARGIN
    for floor in FLOORS:
        rooms = {room.name: room for room in rooms_of(root, floor)}
        arrows = arrows_of(graph, floor, list(rooms.values()))
        rows = _rows(heights(arrows))
        height = len(rows) * ROW + 24
        lines = sum(room.lines for room in rooms.values())
        parts.append(f'<rect class="floor" x="10" y="{top}" width="{WIDTH - 20}" height="{height}"/>')
        parts.append(f'<text class="f" x="{MARGIN}" y="{top + 16}">{floor}/ · {lines:,} lines</text>')
        places = {
            name: (MARGIN + (WIDTH - 2 * MARGIN) * (2 * number + 1) / (2 * len(row)), top + 28 + at * ROW)
            for at, row in enumerate(rows)
            for number, name in enumerate(row)
        }
        for name, targets in sorted(shown(arrows).items()):
            x, y = places[name]
            for target in sorted(targets):
                path = _way((x, y + ROOM_HEIGHT), (places[target][0], places[target][1] - 3), list(places.values()))
                parts.append(f'<path class="a" data-from="{floor}.{name}" data-to="{floor}.{target}" d="{path}"/>')
        for name, (x, y) in places.items():
            room = rooms[name]
            size = f"{room.lines:,} lines" + (f", {room.modules} files" if room.modules > 1 else "")
            parts.append(
                f'<rect class="room" x="{x - ROOM_WIDTH / 2:.0f}" y="{y}" width="{ROOM_WIDTH}" height="{ROOM_HEIGHT}"/>'
            )
            parts.append(f'<text class="t" x="{x:.0f}" y="{y + 17}">{escape(name)}</text>')
            parts.append(f'<text class="d" x="{x:.0f}" y="{y + 31}">{escape(room.about)}</text>')
            parts.append(f'<text class="s" x="{x:.0f}" y="{y + 45}">{size}</text>')
        top += height + 16
    return _sheet(parts, top)


def _way(begin: Point, end: Point, boxes: list[Point]) -> str:
    """A line from one point to the other, bent aside as far as it takes to run behind no room."""

    def hidden(bend: float) -> int:
        """At how many of its points the line lies behind a room."""
        middle = ((begin[0] + end[0]) / 2 + bend, (begin[1] + end[1]) / 2)
        points = []
        for step in range(1, 40):
            s = step / 40
            a, b, c = (1 - s) ** 2, 2 * s * (1 - s), s**2
            points.append((a * begin[0] + b * middle[0] + c * end[0], a * begin[1] + b * middle[1] + c * end[1]))
        return sum(abs(px - x) < ROOM_WIDTH / 2 and y < py < y + ROOM_HEIGHT for px, py in points for x, y in boxes)

    bends = [sign * aside for aside in range(0, 500, 20) for sign in (1, -1)]
    bend = min(bends, key=lambda candidate: (hidden(candidate), abs(candidate)))
    middle_x, middle_y = (begin[0] + end[0]) / 2 + bend, (begin[1] + end[1]) / 2
    return f"M{begin[0]:.0f} {begin[1]:.0f} Q{middle_x:.0f} {middle_y:.0f} {end[0]:.0f} {end[1]:.0f}"


def _rows(heights: Mapping[str, int]) -> list[list[str]]:
    """Rooms from the top row down, at most PER_ROW of them in a row of the picture."""
    rows: list[list[str]] = []
    for height in sorted(set(heights.values()), reverse=True):
        names = sorted(name for name in heights if heights[name] == height)
        count = -(-len(names) // PER_ROW)
        rows += [names[n::count] for n in range(count)]
    return rows


def _sheet(parts: list[str], height: int) -> str:
    head = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">
<title>Floors and rooms of skuwise, drawn from its imports: every arrow points down</title>
<style>
.room {{ fill: #f3f6fb; stroke: #35507a; rx: 5 }}
.floor {{ fill: #fcfdff; stroke: #9fb2cf; stroke-dasharray: 5 4 }}
.t {{ fill: #16243c; font-size: 12px; text-anchor: middle }}
.s {{ fill: #46566f; font-size: 10px; text-anchor: middle }}
.d {{ fill: #16243c; font-size: 10px; font-style: italic; text-anchor: middle }}
.f {{ fill: #35507a; font-size: 13px; font-weight: 600 }}
.a {{ stroke: #7d93b5; fill: none; marker-end: url(#h) }}
</style>
<defs><marker id="h" markerWidth="7" markerHeight="7" refX="6" refY="3.5" orient="auto">
<path d="M0 0L7 3.5L0 7z" fill="#7d93b5"/></marker></defs>
<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>"""
    return "\n".join((head, *parts, "</svg>", ""))


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    file = Path(sys.argv[2]) if len(sys.argv) > 2 else root / "docs/architecture.svg"
    file.write_text(draw(root), encoding="utf-8")


if __name__ == "__main__":
    main()
