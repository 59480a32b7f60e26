"""The documentation speaks of what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from skuwise.__main__ import COMMANDS
from skuwise.agent.metrics import BIN_EDGES, FABRIC_METRICS, GPU_METRICS, HOST_METRICS, SERVING_METRICS

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def code_blocks(page: Path) -> list[list[str]]:
    """The lines of each fenced block."""
    return [
        block.splitlines() for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    ]


def test_every_metric_is_documented_with_its_unit() -> None:
    text = (ROOT / "docs/metrics.md").read_text()
    for metric in (*GPU_METRICS, *FABRIC_METRICS, *HOST_METRICS, *SERVING_METRICS):
        assert f"| `{metric.name}` | {metric.unit} |" in text
    assert ", ".join(f"{edge:g}" for edge in BIN_EDGES) in " ".join(text.split())


def test_the_readme_shows_the_two_commands_and_the_reference_every_subcommand() -> None:
    for words in ("make demo", "make test"):
        assert words in (ROOT / "README.md").read_text()
    for command in COMMANDS:
        assert f"## skuwise {command}\n" in (ROOT / "docs/reference/commands.md").read_text()


def test_the_index_leads_to_every_page() -> None:
    text = (ROOT / "docs/README.md").read_text()
    pages = [path.relative_to(ROOT / "docs") for path in sorted((ROOT / "docs").rglob("*.md"))]
    assert [str(page) for page in pages if page.name != "README.md" and f"]({page})" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text())
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert missing == []


def heading_anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    plain = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", text) for text in re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    ]
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_anchors_of_links_are_headings(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", page.read_text())
    ours = [((page.parent / name) if name else page, anchor) for name, anchor in targets if "://" not in name]
    assert [(str(p), anchor) for p, anchor in ours if p.suffix == ".md" and anchor not in heading_anchors(p)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_shown_are_commands_there_are(page: Path) -> None:
    shown = [line.split()[1] for block in code_blocks(page) for line in block if line.startswith("skuwise ")]
    assert [name for name in shown if name not in COMMANDS] == []


def test_every_test_that_a_table_names_is_there() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", (ROOT / "docs/operations.md").read_text())
    assert len(named) > 20
    assert [name for name in named if f"def {name}(" not in tests] == []


def test_every_test_that_stands_for_an_attack_exists() -> None:
    told = set(re.findall(r"`(?:tests/\w+/)?(test_\w+)(?:\.py)?`", (ROOT / "docs/security.md").read_text()))
    files = list((ROOT / "tests").rglob("test_*.py"))
    there = {path.stem for path in files}.union(*(re.findall(r"def (test_\w+)", path.read_text()) for path in files))
    assert len(told) > 40 and told <= there, told - there


@pytest.mark.parametrize(
    "page", [one for one in PAGES if one.name != "CHANGELOG.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    """`name.py` is some file's name; a path with a folder of ours begins at the root, or ends so in some room."""
    tops = ("agent", "advisor", "tui", "rules", "tests", "benchmarks", "deploy", "systemd", "docs")
    files = [f for top in tops for f in (ROOT / top).rglob("*") if "__pycache__" not in f.parts]
    paths = [f"/{f.relative_to(ROOT)}" for f in files]
    named = re.findall(r"`([A-Za-z_][\w./-]*)`", page.read_text())
    ours = [n for n in named if n.endswith((".py", ".sql")) or ("/" in n and n.split("/")[0] in tops)]
    ours = [n.rstrip("/") for n in ours if n.rstrip("/") not in tops and not n.endswith("/NAME.yaml")]
    assert [n for n in ours if not any(p.endswith((f"/{n}", f"/{n}.py")) for p in paths)] == []
