"""The tutorials, carried out: every shell block of both pages, in order, as a new user."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.tests.nvmlstub import stub_env
from skuwise.tests.support.tutorial_pages import DOCS, Block, blocks_of, environment, run
from skuwise.tests.support.tutorial_server import tutorial_server

ADDRESS = "http://127.0.0.1:9090"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with tutorial_server(tmp_path_factory.mktemp("prometheus")) as url:
        yield url


def test_the_tutorial_on_prometheus_works_as_shown(server: str, tmp_path: Path) -> None:
    blocks = blocks_of(DOCS / "tutorials/prometheus.md")
    assert len(blocks) >= 7 and sum(one.key is not None for one in blocks) == 1
    at = [replace(one, text=one.text.replace(ADDRESS, server)) for one in blocks]
    environ = environment(tmp_path, os.environ)
    cut = next(n for n, one in enumerate(at) if " ID" in one.text)
    first = run(at[:cut], tmp_path, environ)
    advice = json.loads((tmp_path / "advice.json").read_text())
    assert advice["summary"]["recoverable_usd_per_month"] > 0
    chosen = advice["recommendations"][0]["id"]
    rest = [replace(one, text=one.text.replace(" ID", f" {chosen}")) for one in at[cut:]]
    done = [*first, *run(rest, tmp_path, {**environ, "PROM": server}, shows="spare-01")]
    for one in done:
        assert one.status == 0, f"{one.block.title}\n{one.output[-2000:]}"
        assert "Traceback" not in one.output
    shown = {one.block.title: one.output for one in done}
    assert "spare-01" in shown['skuwise advise --prometheus "$PROM"']
    assert "DCGM_FI" in shown[f'skuwise explain --prometheus "$PROM" {chosen} --query']
    mails = {path.name for path in (tmp_path / "mails").iterdir()}
    assert {"fleet.eml", "fleet.html"} <= mails


def test_the_tutorial_on_one_node_works_as_shown(tmp_path: Path) -> None:
    blocks = blocks_of(DOCS / "tutorials/one-node.md")
    assert len(blocks) >= 6
    stub = stub_env(tmp_path, "[gpu 0-1]\nsm_active = 0.5\n", base=dict(os.environ))
    done = run(blocks, tmp_path, environment(tmp_path, stub))
    for one in done:
        # Before 30 hours of data `advise` may have nothing to work on.
        allowed = {0, 3} if one.block.title.startswith("skuwise advise") else {0}
        assert one.status in allowed, f"{one.block.title}\n{one.output[-2000:]}"
        assert "Traceback" not in one.output
    advised = next(one.output for one in done if one.block.title == "skuwise advise --db node.db")
    assert "30 h" in advised and "possible" in advised
    sampled = next(one.output for one in done if one.block.title.startswith("python3"))
    assert sampled.count("(") == 2, sampled


def test_a_block_that_fails_is_found(tmp_path: Path) -> None:
    environ = environment(tmp_path, os.environ)
    good, bad = run([Block("export A=1\n"), Block('test "$A" = 2\n')], tmp_path, environ)
    assert (good.status, bad.status) == (0, 1)


def test_without_a_server_the_tutorial_ends_with_a_sentence(tmp_path: Path) -> None:
    environ = environment(tmp_path, {**os.environ, "PROM": "http://127.0.0.1:9"})
    text = 'skuwise doctor --prometheus "$PROM"'
    done = subprocess.run(
        ["bash", "-c", text], env=environ, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path
    )
    assert done.returncode in (1, 2, 3)
    assert "Traceback" not in done.stderr and "127.0.0.1:9" in done.stderr
