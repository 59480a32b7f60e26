"""One piece of work told in three ways: what is found, what it costs and what is recommended does not hang on who names
it; without names less is claimed, never more."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from skuwise.tests.fleets import series, truth
from skuwise.tests.fleets.retold import WAYS, told, work_to_tell
from skuwise.tests.fleets.sacct import account, job_table, user_of
from skuwise.tests.support.prometheus_engines import victoria

pytestmark = pytest.mark.slow
FLEET = work_to_tell(interval_s=120)


@pytest.fixture(scope="module")
def advice(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    out = {}
    for way in WAYS:
        folder, fleet = tmp_path_factory.mktemp(way), told(FLEET, way)
        with victoria(folder / "engine", series(fleet, np.random.default_rng(1))) as url:
            command = [sys.executable, "-m", "skuwise", "advise", "--prometheus", url, "--since", "4d", "--until",
                       str(np.datetime64(int(fleet.end), "s")) + "Z", "--format", "json", "--no-ledger",
                       "--no-cache"]  # fmt: skip
            if way == "slurm":
                (folder / "jobs.txt").write_text(job_table(fleet))
                command += ["--jobs", str(folder / "jobs.txt")]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        out[way] = json.loads(done.stdout)
    return out


def test_every_job_is_there_with_its_gpus(advice: dict[str, dict]) -> None:
    for way in WAYS:
        held = [frozenset(one["gpus"]) for one in advice[way]["workloads"]]
        for work in truth(FLEET).workloads:
            gpus = frozenset(one.uuid for one in work.held)
            if way != "none" or (work.begin > FLEET.start and work.end < FLEET.end):
                assert gpus in held, (way, work.name)
            elif work.kind != "idle":
                # Nothing of it began or ended: its GPUs may be told apart, and are never mixed with those of others.
                own = [one for one in held if one & gpus]
                assert own and frozenset().union(*own) == gpus, (way, work.name)


def test_slurm_has_names_and_owners_from_the_job_table(advice: dict[str, dict]) -> None:
    by_name = {one["name"]: one["owner"] for one in advice["slurm"]["workloads"]}
    for work in FLEET.workloads:
        assert by_name[work.name]["user"] == user_of(FLEET, work)
        assert by_name[work.name]["account"] == account(work)


def test_kubernetes_has_teams_from_labels(advice: dict[str, dict]) -> None:
    by_name = {one["name"]: one["owner"] for one in advice["kubernetes"]["workloads"]}
    for work in FLEET.workloads:
        assert by_name[work.name]["namespace"] == work.namespace


def test_unlabelled_work_has_no_owner_and_says_so(advice: dict[str, dict]) -> None:
    workloads = advice["none"]["workloads"]
    assert workloads
    for one in workloads:
        assert one["name"].startswith("unattributed on ")
        assert not any(one["owner"].values())


def test_money_and_hours_agree(advice: dict[str, dict]) -> None:
    cost = {way: one["summary"]["cost_usd"] for way, one in advice.items()}
    assert cost["slurm"] == pytest.approx(cost["kubernetes"], rel=0.001)
    assert cost["none"] == pytest.approx(cost["kubernetes"], rel=0.001)
    hours = {way: sum(one["gpu_hours"] for one in told["workloads"]) for way, told in advice.items()}
    assert hours["slurm"] == pytest.approx(hours["kubernetes"], rel=0.01)
    idle = sum((one.end - one.begin) / 3600 * len(one.held) for one in truth(FLEET).workloads if one.kind == "idle")
    assert hours["none"] == pytest.approx(hours["kubernetes"] - idle, rel=0.1)


def test_less_is_claimed_without_names(advice: dict[str, dict]) -> None:
    cash = {way: one["summary"]["recoverable_usd_per_month"] or 0.0 for way, one in advice.items()}
    assert cash["slurm"] == pytest.approx(cash["kubernetes"], rel=0.05, abs=1)
    assert cash["none"] <= cash["kubernetes"] * 1.001
    idle = {
        way: {gpu for one in told["findings"] if one["rule"] in ("idle", "held-idle") for gpu in one["gpus"]}
        for way, told in advice.items()
    }
    assert idle["none"] <= idle["kubernetes"]
