"""The tutorials, carried out: every shell block of both pages, in order, as a new user."""

import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from skuwise.tests.nvmlstub import stub_env
from skuwise.tests.server_metrics.exposition import BUSY, gpu, host, kube, moments
from skuwise.tests.server_metrics.prometheus_series import Series, merged
from skuwise.tests.support.pasted_commands import environment, on_a_terminal
from skuwise.tests.support.prometheus_engines import prometheus

DOCS = Path(__file__).parents[3] / "docs"
_BLOCK = re.compile(r"(<!-- interactive: press (\w+) -->\n)?^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One block to run; `key` ends it where it draws on a terminal until it is pressed."""

    text: str
    key: str = ""

    @property
    def title(self) -> str:
        return self.text.strip().splitlines()[0]


def blocks_of(page: Path, heading: str) -> tuple[Block, ...]:
    """The blocks marked `sh` below a heading of the second level, in their order."""
    (section,) = [part for part in page.read_text().split("\n## ") if part.startswith(f"{heading}\n")]
    return tuple(Block(text, key) for _, key, text in _BLOCK.findall(section))


def run(blocks: Sequence[Block], folder: Path, environ: Mapping[str, str], shows: str = "GPU") -> dict[str, str]:
    """Run each block where the one before left the shell: its folder and its exported variables. Returns the outputs by
    the first lines. `shows`: what a block on a terminal shows once it has its data."""
    outputs, current = {}, dict(environ)
    for block in blocks:
        if block.key:
            status, output = on_a_terminal(block.text, folder, current, shows, block.key)
        else:
            after = folder / ".environment"
            script = f"{block.text}\nstatus=$?\nenv -0 > {shlex.quote(str(after))}\nexit $status\n"
            given = {"cwd": folder, "env": current, "capture_output": True, "text": True}
            done = subprocess.run(["bash", "-c", script], **given, timeout=600, check=False)
            status, output = done.returncode, done.stdout + done.stderr
            current |= dict(pair.split("=", 1) for pair in after.read_text().split("\0") if "=" in pair)
        # Before 30 hours of data `advise` may have nothing to work on.
        allowed = (0, 3) if block.title == "skuwise advise --db node.db" else (0,)
        assert status in allowed and "Traceback" not in output, f"{block.title}\n{output[-2000:]}"
        outputs[block.title] = output
    return outputs


DAYS, INTERVAL_S = 15.0, 300.0
RESTS: Mapping[str, float] = {
    **dict.fromkeys(BUSY, 0.0), "DCGM_FI_DEV_FB_FREE": 80000, "DCGM_FI_DEV_POWER_USAGE": 70, "DCGM_FI_DEV_GPU_TEMP": 30,
}  # fmt: skip


def fleet(end: float) -> Iterator[Series]:
    """InfiniBand nodes of eight GPUs: three in constant use and one unused. `end`: Unix seconds."""
    ts = moments(end - DAYS * 86400, end, INTERVAL_S)
    sort = {"label_node_kubernetes_io_instance_type": "Standard_ND96isr_H100_v5",
            "label_topology_kubernetes_io_region": "eastus"}  # fmt: skip
    for node in ("serve-01", "serve-02", "train-01", "spare-01"):
        yield from host(node, ts, ports=8)
        yield kube("kube_node_labels", 1, ts, node=node, **sort)
        yield kube("kube_node_status_capacity", 8, ts, node=node, resource="nvidia_com_gpu", unit="integer")
        pod = f"{node.partition('-')[0]}-7d9f8b6c5-{node[-2:]}x4z"
        held = {"exported_pod": pod, "exported_namespace": "ml", "exported_container": "main"}
        values, labels = (RESTS, {}) if node == "spare-01" else (BUSY, held)
        for index in range(8):
            yield from gpu(node, f"GPU-{node}-{index}", ts, values, gpu=str(index), **labels)


ADDRESS = "http://127.0.0.1:9090"


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus whose newest sample is a few minutes old, as in a cluster that runs."""
    end = time.time() // INTERVAL_S * INTERVAL_S
    with prometheus(tmp_path_factory.mktemp("prometheus"), merged(fleet(end))) as url:
        yield url


def test_the_tutorial_on_prometheus_works_as_shown(server: str, tmp_path: Path) -> None:
    blocks = blocks_of(DOCS / "tutorial.md", "Your own Prometheus")
    assert len(blocks) >= 7 and sum(bool(block.key) for block in blocks) == 1
    at = [block._replace(text=block.text.replace(ADDRESS, server)) for block in blocks]
    environ = environment(tmp_path, os.environ)
    cut = next(n for n, block in enumerate(at) if " ID" in block.text)
    outputs = run(at[:cut], tmp_path, environ)
    advice = json.loads((tmp_path / "advice.json").read_text())
    assert advice["summary"]["recoverable_usd_per_month"] > 0
    chosen = advice["recommendations"][0]["id"]
    rest = [block._replace(text=block.text.replace(" ID", f" {chosen}")) for block in at[cut:]]
    outputs |= run(rest, tmp_path, {**environ, "PROM": server}, shows="spare-01")
    assert "spare-01" in outputs['skuwise advise --prometheus "$PROM"']
    assert "DCGM_FI" in outputs[f'skuwise explain --prometheus "$PROM" {chosen} --query']
    assert {"fleet.eml", "fleet.html"} <= {path.name for path in (tmp_path / "mails").iterdir()}


def test_the_tutorial_on_one_node_works_as_shown(tmp_path: Path) -> None:
    blocks = blocks_of(DOCS / "tutorial.md", "One node")
    assert len(blocks) >= 6
    stub = stub_env(tmp_path, "[gpu 0-1]\nsm_active = 0.5\n", base=dict(os.environ))
    outputs = run(blocks, tmp_path, environment(tmp_path, stub))
    advised = outputs["skuwise advise --db node.db"]
    assert "30 h" in advised and "possible" in advised
    sampled = next(output for title, output in outputs.items() if title.startswith("python3"))
    assert sampled.count("(") == 2, sampled
