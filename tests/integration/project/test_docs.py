"""The documentation speaks of what is there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from skuwise.__main__ import COMMANDS
from skuwise.agent.metrics import BIN_EDGES, FABRIC_METRICS, GPU_METRICS, HOST_METRICS, SERVING_METRICS
from skuwise.tests.nvmlstub import stub_env

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


def test_the_index_leads_to_every_page() -> None:
    text = (ROOT / "docs/README.md").read_text()
    pages = [path.relative_to(ROOT / "docs") for path in sorted((ROOT / "docs").rglob("*.md"))]
    assert [str(page) for page in pages if page.name != "README.md" and f"]({page})" not in text] == []


def heading_anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    plain = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", text) for text in re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    ]
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_pages_and_headings_and_commands_are_there(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]*?)(?:#([^)]*))?\)", page.read_text())
    ours = [((page.parent / name) if name else page, anchor) for name, anchor in targets if "://" not in name]
    assert [str(p) for p, _ in ours if not p.exists()] == []
    headed = [(p, anchor) for p, anchor in ours if anchor and p.suffix == ".md"]
    assert [(str(p), anchor) for p, anchor in headed if anchor not in heading_anchors(p)] == []
    shown = [line.split()[1] for block in code_blocks(page) for line in block if line.startswith("skuwise ")]
    assert [name for name in shown if name not in COMMANDS] == []


def test_the_readme_fits_one_screen_and_names_the_apt_line_and_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 60
    lines = [line.split("  #")[0].strip() for block in code_blocks(ROOT / "README.md") for line in block]
    assert lines == ["sudo apt-get install git make python3-venv", "make demo", "make test"]
    assert text.count("![") == 1


def test_every_command_that_needs_no_gpu_works_as_shown(tmp_path: Path) -> None:
    lines = [line.split("  #")[0].rstrip() for block in code_blocks(ROOT / "docs/README.md") for line in block]
    shown = [line for line in lines if line.startswith("skuwise ")]
    assert len(shown) >= 2
    environment = stub_env(tmp_path, "[gpu 0-1]\nsm_active = 0.5\n")
    for line in shown:
        done = subprocess.run(
            [sys.executable, "-m", "skuwise", *shlex.split(line)[1:]],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=400,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        assert done.stdout or done.stderr
        assert "Traceback" not in done.stderr
