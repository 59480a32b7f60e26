"""Readers of what comes from outside: spoiled input is read, or refused in a sentence; nothing else comes of it."""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.billing.bill import Export, bill_document, sum_up
from skuwise.advisor.billing.offers import merge, offers_document, read_offers
from skuwise.advisor.core.frame import Window
from skuwise.advisor.notify.routes import load_routes
from skuwise.advisor.show.writers.text import document_text
from skuwise.advisor.telemetry.prometheus.client.response import Grid, LabelSets, read_matrix, read_vector
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.agent.base.settings import PageError, parse_zone
from skuwise.agent.config import load_config
from skuwise.agent.jobs import kubernetes_files
from skuwise.agent.jobs.podresources import WireError, decode_pods
from skuwise.agent.jobs.processes import origin_of
from skuwise.agent.jobs.slurm import parse_job_file
from skuwise.agent.jobs.slurm_conf import expand, read_gres
from skuwise.agent.model import Gpu, Node, Tick, Workload
from skuwise.agent.slurm_jobs.queue import read_squeue
from skuwise.agent.slurm_jobs.read_jobs import read_job_table
from skuwise.agent.sources import serving
from skuwise.agent.sources.pages import parse_page
from skuwise.agent.store.rollups import RollupJob
from skuwise.agent.store.writer import Writer
from skuwise.rules.base.errors import SkuwiseError
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.catalog.price_files import load_prices
from skuwise.rules.policy.thresholds import load_custom_rules
from skuwise.tests.support.metrics_fixtures import VLLM, PagesAtHand
from skuwise.tests.support.rules_files import CUSTOM, PRICES
from skuwise.tests.support.strategies import check, spoiled

SACCT = Path(__file__).parents[2] / "data/sacct"
OFFERS = Path(__file__).parents[2] / "data/gpuhunt"
_SQUEUE = (SACCT.parent / "squeue/22.05.json").read_bytes().splitlines(keepends=True)
_QUEUE = b"".join(_SQUEUE[:9]).rstrip(b",\n") + b"]}"
HOUR = 3600.0
T0 = 1_790_000_000.0 // HOUR * HOUR
CATALOG = load_catalog()


@dataclass(frozen=True)
class Reader:
    """`honest`: input that it reads, or a function that makes it; `read`: (folder, input) -> what was read.
    `refusals`: errors by which it says what is wrong, beside SkuwiseError. `texts`: whether it makes texts harmless."""

    name: str
    honest: str | bytes | Callable[[], bytes]
    read: Callable[[Path, bytes], object]
    words: tuple[bytes, ...] = ()
    refusals: tuple[type[Exception], ...] = ()
    texts: bool = True


def _written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _of_file(name: str, read: Callable[[Path], object]) -> Callable[[Path, bytes], object]:
    """Reads one file by its path."""
    return lambda folder, data: read(_written(folder, name, data))


@cache
def _database() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder, "honest.db")
        with Writer.open(path, now=lambda: T0 + 2 * HOUR) as writer:
            node = writer.for_node(Node("n1", "c", gpu_count=1), T0)
            node.set_gpus([Gpu("GPU-1", 0, "NVIDIA H100 80GB HBM3", sku="H100-SXM5", mem_total_bytes=80 * 2**30)], T0)
            use = Workload("w", "s", "train", "slurm", job_id="22")
            node.put_workload_use(use, "GPU-1", T0, T0 + HOUR, "allocation")
            for n in range(60):
                node.add_tick(Tick(T0 + 60.0 * n, 60.0, gpus={"GPU-1": {"gpu_util": 0.5, "power_watts": 300.0}}))
            writer.commit()
        RollupJob(path).run(T0 + 2 * HOUR)
        return path.read_bytes()


def _read_database(path: Path) -> object:
    for beside in path.parent.glob(f"{path.name}-*"):
        beside.unlink()
    frame = read_frame([path], Window(T0, T0 + 2 * HOUR))
    return frame.gpu.select_dtypes("float").fillna(0.0).to_numpy().tolist()


def _read_answer(_: Path, body: bytes) -> object:
    grid = Grid(T0, T0 + 11 * HOUR, HOUR)
    with contextlib.suppress(SkuwiseError):
        read_vector(body, None, LabelSets())
    matrix = read_matrix(body, grid, None, LabelSets())
    return [dict(labels) for labels in matrix.labels], matrix.notes


def _read_jobs(path: Path) -> object:
    return list(read_job_table(path, zone=parse_zone("Europe/Berlin")).jobs.values())


def _read_queue(path: Path) -> object:
    return list(read_squeue(path).jobs)


def _read_gres(folder: Path, data: bytes) -> object:
    _written(folder, "own/slurm.conf", _SLURM.encode())
    return read_gres(_written(folder, "own/gres.conf", data).parent, "gpu01")


def _read_charges(path: Path) -> object:
    export = Export(path)
    bill = sum_up(export.charges(), CATALOG)
    return bill_document(bill, export) if bill.lines else None


def _read_offers(_: Path, rows: bytes) -> object:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("aws.csv", rows)
    read = read_offers("aws", CATALOG, lambda url: b"20260806-812" if url.endswith("n") else content.getvalue())
    page = document_text(offers_document([read], CATALOG), width=100, color=False)
    return [*merge("", "prices.yaml", [read])[0].split("\n"), *page.split("\n")]


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + _varint(value >> 7)


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _read_pods(folder: Path, data: bytes) -> object:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        kubernetes_files.main("pods", str(_written(folder, "pods.json", data)), "n1", "c", "team")
    return json.loads(said.getvalue())


def _read_page(_: Path, data: bytes) -> object:
    pages, readings = PagesAtHand(), []
    source = serving.ServingSource(pages, (_URL,))
    for number, body in enumerate((_ENGINE.encode(), data)):
        pages._put(_URL, 10.0 * number, series=parse_page(body, serving.WANTED))
        source.probe()
        reading = source.read(pages._pages[_URL].instant)
        readings += [*reading.gpus.values(), *reading.serving]
    return readings


_LABELS = {"__name__": "DCGM_FI_PROF_SM_ACTIVE", "Hostname": "gpu-1", "UUID": "GPU-1", "exported_pod": 'a "pod"'}
_SERIES = {"metric": _LABELS, "values": [[T0 + HOUR * n, str(0.25 * n)] for n in range(12)]}
_ANSWER = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [_SERIES] * 3}})
_DEVICES = _field(1, b"nvidia.com/gpu") + _field(2, b"GPU-0") + _field(2, b"GPU-1")
_KUBELET = _field(1, _field(1, b"web-0") + _field(2, b"n") + _field(3, _field(1, b"main") + _field(2, _DEVICES)))
_PODS = """{"kind": "List", "items": [{
  "kind": "Pod",
  "metadata": {"name": "web-0", "namespace": "n", "uid": "1b8a", "labels": {"team": "search"},
               "ownerReferences": [{"kind": "StatefulSet", "name": "web", "controller": true}]},
  "spec": {"nodeName": "n1", "containers": [
    {"name": "main", "image": "repo/vllm:1", "resources": {"limits": {"nvidia.com/gpu": "4"}}}]},
  "status": {"phase": "Running", "startTime": "2026-10-01T00:00:05Z"}}]}
"""
_URL = "http://127.0.0.1:8000/metrics"
_ENGINE = VLLM.format(running=3, preemptions=1, prompt=900, generated=800, first=7, first_sum=0.5)
_SLURM = """ClusterName=lab
TaskPlugin=task/cgroup
GresTypes=gpu
NodeName=gpu[01-04] CPUs=8 Gres=gpu:h100:4,gpu:a100:2 \\
  State=UNKNOWN
"""
_GRES = "AutoDetect=off\nNodeName=gpu[01-04] Name=gpu Type=h100 File=/dev/nvidia[0-3] Cores=0-3\n"
_PRICES = f'{PRICES}power:\n  - {{region: eastus, usd_per_kwh: 0.085, source: "a bill, October", as_of: 2026-10-01}}\n'
_ROUTES = """administrators = ["ann@example.org"]
[teams.search]
to = ["search@example.org", "bob@example.org"]
namespace = ["search", "search-*"]
"""
_SETTINGS = """node = "gpu-1"
interval = "1s"
max_size = "1GB"
listen = "127.0.0.1:9700"
serving_endpoints = ["http://127.0.0.1:8000/metrics"]
fabric_roles = { mlx5_0 = "compute" }
"""
_FOCUS = """BilledCost,EffectiveCost,ListCost,BillingCurrency,ChargeCategory,ChargePeriodStart,ChargePeriodEnd,\
RegionId,ServiceName,SkuPriceDetails,ConsumedQuantity,ConsumedUnit
2359.68,2359.68,2359.68,USD,Usage,2026-09-01T00:00:00Z,2026-09-02T00:00:00Z,eastus,\
Virtual Machines,"{""InstanceType"": ""Standard_ND96isr_H100_v5""}",24,Hours
"""
_JOB = "version=2\njob_id=22\ngpus=0,2-3\nstart=1790000000\nuid=1000\nuser=ann\nname=a b\nnode=gpu01\ncomplete=1\n"
_YAML = (b"&a [*a, *a]", b"<<: *a", b"!!python/object/apply:os.system [ls]", b"--- ", b"{a: {b: [1, [2]]}}", b".nan",
         b"2026-13-45", b"{__class__}", b"{cpu!r:>9999999999}")  # fmt: skip
_SACCT = (b"22_[1-10%2]", b"gpu[1-999999999]", b"a[1-2][1-2][1-2][1-2][1-2]", b"99999999999", b"mem=1e999G", b"Unknown",
          b"0001-01-01T00:00:00", b"9999-12-31T23:59:59+99:59", b"gres/gpu=99999999999999999999")  # fmt: skip

READERS = (
    Reader("database", _database, _of_file("node.db", _read_database)),
    Reader("prometheus", _ANSWER, _read_answer, (b'"NaN"', b'"+Inf"', b'"values":', b"[],", b'"resultType":"vector"')),
    Reader("sacct", (SACCT / "steps.txt").read_bytes(), _of_file("jobs.txt", _read_jobs), _SACCT),
    Reader("squeue", _QUEUE, _of_file("squeue.json", _read_queue), (b"gres:gpu", b"3-9%2", b'"PENDING"')),
    Reader("sacct-json", (SACCT / "jobs.json").read_bytes(), _of_file("jobs.json", _read_jobs), (b'"set":true',)),
    Reader("kubelet", _KUBELET, lambda _, data: [asdict(pod) for pod in decode_pods(data)],
           (_varint(2**63), b"\x0a\xff\xff\xff\xff\x0f"), (WireError,)),
    Reader("kubectl", _PODS, _read_pods, (b'"kind":"Pod"', b'"items":', b'"metadata":null')),
    Reader("slurm.conf", _SLURM, lambda f, d: read_gres(_written(f, "etc/slurm.conf", d).parent, "gpu01"),
           (b"NodeName=gpu[01-999999999]", b"Include /etc/passwd", b"Gres=gpu:9999999999", b"\\\n")),
    Reader("gres.conf", _GRES, _read_gres, (b"File=/dev/nvidia[0-99999999]", b"Count=4K"), texts=False),
    Reader("job file", _JOB, lambda _, d: parse_job_file(d, "22"), (b"gpus=0-9999", b"complete=1\n")),
    Reader("host list", "gpu[01-04,07],login1,a[1-2]b[3-4]", lambda _, d: expand(d.decode("utf-8", "replace")),
           (b"[1-2]", b"n[1-65536]", b"n[9-1]"), texts=False),
    Reader("cgroup", "0::/system.slice/slurmstepd.scope/job_22/step_0/user/task_0\n",
           lambda _, d: origin_of(d.decode("ascii", "replace")), (b"kubepods-burstable-pod1b8a_1.slice",), texts=False),
    Reader("engine page", _ENGINE, _read_page,
           (b'le="+Inf"', b" 1e999", b"# TYPE x counter"), (PageError,)),
    Reader("prices", _PRICES, _of_file("p.yaml", load_prices), _YAML),
    Reader("custom rule", CUSTOM, _of_file("site/custom/a.yaml", lambda p: load_custom_rules(p.parents[1])),
           _YAML),
    Reader("routes", _ROUTES, _of_file("routes.toml", load_routes), (b"a.b.c = 1", b'"""', b"= [")),
    Reader("settings", _SETTINGS, _of_file("skuwise.toml", lambda p: load_config({"config": p}, {})),
           (b"x = nan", b"interval = inf", b"max_size = '1e999GB'", b"listen = 1", b"= 07:32:00")),
    Reader("charges", _FOCUS, _of_file("focus.csv", _read_charges),
           (b"EUR", b"1000 Hours", b"0001-01-01T00:00:00Z", b"-1e12", b"=1+1")),
    Reader("offers", (OFFERS / "aws.csv").read_bytes(), _read_offers,
           (b"nan", b"1e999", b"8,H100", b"nvidia,,x86,[]", b'"us-east-1} #"', b"{}")),
)  # fmt: skip


def honest(reader: Reader) -> bytes:
    content = reader.honest() if callable(reader.honest) else reader.honest
    return content.encode() if isinstance(content, str) else content


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzzed")


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
@given(data=st.data())
def test_spoiled_input_is_read_or_refused_in_a_sentence(folder: Path, reader: Reader, data: st.DataObject) -> None:
    given = data.draw(spoiled(honest(reader), reader.words))
    try:
        check(reader.read(folder, given), texts=reader.texts)
    except reader.refusals:
        return
    except SkuwiseError as error:
        said = str(error)
        assert said.isprintable() and len(said) < 1500
        assert error.message.rstrip().endswith((".", "!", "?"))


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_honest_input_is_read(folder: Path, reader: Reader) -> None:
    content = reader.read(folder, honest(reader))
    check(content, texts=reader.texts)
    assert content not in (None, [], (), {})
