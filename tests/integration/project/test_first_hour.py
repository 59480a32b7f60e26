"""The first hour of a new user, from a fresh clone: demo, the tutorial on Prometheus, the report, the screens.

The environment is the one that runs the tests; installing from zero is tested apart. The times are printed
(`pytest -s`); FIRST_HOUR=FILE keeps the transcript there, and the page of the screens as SVG beside it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.tests.support.tutorial_pages import Block, Ran, blocks_of, environment, run
from skuwise.tests.support.tutorial_server import tutorial_server

ROOT = Path(__file__).parents[3]
ADDRESS = "http://127.0.0.1:9090"
LINES_SHOWN = 24


def cloned(folder: Path) -> Path:
    """A fresh clone under the name that Python imports."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout, so there is nothing to clone")
    place = folder / "fresh" / "skuwise"
    command = [
        "git",
        "-c",
        "safe.directory=*",
        "clone",
        "--quiet",
        "--no-hardlinks",
        "--depth=1",
        f"file://{ROOT}",
        str(place),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place


def transcript(steps: list[tuple[str, Ran]]) -> str:
    """Each step with its commands, the beginning of what it printed, and its time."""
    parts = []
    for title, one in steps:
        lines = one.output.rstrip().splitlines()
        shown = lines[:LINES_SHOWN]
        if len(lines) > len(shown):
            shown.append(f"... ({len(lines) - len(shown)} more lines)")
        text = "\n".join(f"$ {line}" for line in one.block.text.strip().splitlines())
        printed = "" if one.block.key else "\n".join(shown)
        parts.append(f"== {title} ({one.seconds:.1f} s, exit status {one.status})\n{text}\n{printed}\n")
    total = sum(one.seconds for _, one in steps)
    table = [f"{one.seconds:8.1f} s  {title}" for title, one in steps]
    return "\n".join([*parts, "Times", *table, f"{total:8.1f} s  total", ""])


def test_the_first_hour(tmp_path: Path) -> None:
    began = time.monotonic()
    place = cloned(tmp_path)
    steps = [("git clone", Ran(Block("git clone REPOSITORY skuwise\n"), 0, "", time.monotonic() - began))]
    here = tmp_path / "work"
    here.mkdir()
    environ = environment(here, {**os.environ, "PYTHONPATH": str(place.parent)})
    readme = (place / "README.md").read_text()
    assert re.search(r"^make demo\b", readme, re.MULTILINE)
    # What `make demo` runs once its environment is there.
    demo = run([Block("skuwise demo --dir demo\n")], here, environ)
    steps += [("README: make demo, without the installation", one) for one in demo]
    blocks = blocks_of(place / "docs/tutorials/prometheus.md")
    with tutorial_server(tmp_path / "prometheus") as url:
        at = [replace(one, text=one.text.replace(ADDRESS, url)) for one in blocks]
        cut = next(n for n, one in enumerate(at) if " ID" in one.text)
        done = run(at[:cut], here, environ)
        chosen = json.loads((here / "advice.json").read_text())["recommendations"][0]["id"]
        rest = [replace(one, text=one.text.replace(" ID", f" {chosen}")) for one in at[cut:]]
        done += run(rest, here, {**environ, "PROM": url}, shows="spare-01")
        steps += [(f"tutorial: {one.block.title}", one) for one in done]
        picture = [Block(f"python -m skuwise.tests.support.page_picture {url} page.svg\n")]
        path = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
        steps += [
            ("screens: the first page as a picture", one) for one in run(picture, here, {**environ, "PATH": path})
        ]
    text = transcript(steps)
    print(text)  # noqa: T201 - the transcript is what this test is for
    if os.environ.get("FIRST_HOUR"):
        kept = Path(os.environ["FIRST_HOUR"])
        kept.write_text(text)
        shutil.copy(here / "page.svg", kept.with_suffix(".svg"))
    for title, one in steps:
        assert one.status == 0, f"{title}\n{one.output[-2000:]}"
        assert "Traceback" not in one.output
    mail = (here / "mails/fleet.html").read_text()
    assert "<html" in mail and "spare-01" in mail
    assert (
        (here / "mails/fleet.eml")
        .read_bytes()
        .startswith((b"From:", b"Subject:", b"To:", b"MIME", b"Date:", b"Content"))
    )
    assert (here / "page.svg").read_text().startswith("<svg") and "GPU" in (here / "page.txt").read_text()
