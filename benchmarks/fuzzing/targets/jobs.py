"""Slurm's job tables: what sacct prints, as text and JSON, and what is made of them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

from ..documents import by_json
from ..lines import by_cells
from ..target import Mutator, Prepared, Seed, Target
from ..verdict import finite

_DATA = Path(__file__).parents[3] / "tests/data/sacct"
_STEPS = "JobID|JobIDRaw|JobName|User|Start|End|NodeList|AllocTRES|Submit|Restarts|Cluster|QOS\n" + "".join(
    f"{n}_[1-3%2]|{n}|name {n}|ann|2026-10-25T02:3{n}:00|Unknown|gpu[01-0{n},12]-ib|cpu=8,gres/gpu:h100={n},mem=32G|"
    f"1795373601.5|{n}|lab|\n" for n in range(1, 6)
)  # fmt: skip


def _prepare(folder: Path) -> Prepared:
    from skuwise.agent.slurm_jobs.choice import expand_node_list, job_nodes
    from skuwise.agent.slurm_jobs.settings import parse_zone
    from skuwise.agent.slurm_jobs.table_file import read_job_table, write_job_table

    path, out = folder / "jobs.txt", folder / "out.txt"
    zone = parse_zone("Europe/Berlin", "a test")

    def read(_: str, data: bytes) -> object:
        path.write_bytes(data)
        found = read_job_table(path, zone=zone)
        finite(list(found.jobs.values()), "a job")
        finite(found.warnings(), "a warning")
        for job in list(found.jobs.values())[:50]:
            job_nodes(job)
            if job.node_list:
                expand_node_list(job.node_list)
        write_job_table(out, found.jobs.values())
        again = read_job_table(out) if found.jobs else found
        finite(list(again.jobs.values()), "a job that was written")
        return found

    texts = [Seed("text", (_DATA / name).read_bytes()) for name in ("requeued.txt", "steps.txt", "epoch.txt")]
    seeds = [*texts, Seed("text", _STEPS.encode())]
    words = (b"Unknown", b"None", b"CANCELLED by 1000", b"PENDING", b"22_[1-10%2]", b"22+1", b"22.batch", b"22_7",
             b"gpu[001-004,007],login1", b"gpu[1-999999999]", b"a[1-2][1-2][1-2][1-2][1-2]", b"n[1-65536]", b"n[9-1]",
             b"2026-10-25T02:30:00", b"1795373601", b"99999999999", b"2026-13-45T99:99:99", b"1-02:03:04",
             b"gres/gpu=99999999999999999999", b"mem=1e999G", b"mem=999999999999999E", b"cpu=-1", b"\xff\xfe",
             b"sacct: error: x", b"2026-03-29T02:30:00", b"0001-01-01T00:00:00",
             b"9999-12-31T23:59:59+99:59")  # fmt: skip
    return Prepared(seeds, read, by_cells(b"|", *words))


def _prepare_json(folder: Path) -> Prepared:
    text = _prepare(folder)
    whole = json.loads((_DATA / "jobs.json").read_text(encoding="utf-8"))
    jobs = whole["jobs"]
    new = {
        "job_id": 22, "name": "train", "user": "ann", "account": "ml", "partition": "gpu", "qos": "", "cluster": "lab",
        "array": {"job_id": 20, "task_id": {"set": True, "infinite": False, "number": 7}},
        "time": {"start": 1795373601, "end": {"set": True, "infinite": False, "number": 1795373999}, "submission": 1},
        "state": {"current": ["COMPLETED"]}, "nodes": "gpu[1-4]", "restart_cnt": 1, "association": {"cluster": "lab"},
        "tres": {"allocated": [{"type": "gres", "name": "gpu:h100", "count": 4}, {"type": "mem", "count": 1024}]},
    }  # fmt: skip
    seeds = [Seed("json", json.dumps({"jobs": [job, new]}).encode()) for job in jobs[:3]]
    return Prepared(seeds, text.read, _json_or_lead(by_json(b'"jobs":', b'"set":true', b"1795373601", b'"number":')))


def _json_or_lead(inner: Mutator) -> Mutator:
    def mutate(draw: random.Random, seed: Seed, seeds: Sequence[Seed]) -> bytes:
        data = inner(draw, seed, seeds)
        return draw.choice((b"", b"", b"", b" ", b"\n", b"\xef\xbb\xbf")) + data

    return mutate


SACCT = Target("sacct", "job tables as sacct prints them, and node lists (agent/slurm_jobs)", _prepare)
JOB_JSON = Target("sacct-json", "job tables of sacct --json and slurmrestd (agent/slurm_jobs)", _prepare_json)
