# pyright: reportOptionalMemberAccess=false
"""Fleets in turn: decisions of one do not apply to the other."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.advice_types import Fleet
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.advisor.demo import simulate
from skuwise.advisor.state.file import State
from skuwise.advisor.state.fleets import fleets_in
from skuwise.advisor.telemetry.prometheus.client.range_planner import Ask, Log
from skuwise.advisor.telemetry.prometheus.client.response import Grid, Labels, SeriesAnswer
from skuwise.advisor.telemetry.prometheus.node_identity import NodeIdentity, node_table
from skuwise.advisor.telemetry.prometheus.owners import KubeNode, KubeState, read_kube
from skuwise.advisor.telemetry.prometheus.rows.fabric import PortRows
from skuwise.advisor.telemetry.prometheus.rows.gpus import About, Cells, GpuRows
from skuwise.rules.catalog.loader import load_catalog

UNTIL = parse_moment("2026-03-09")


def as_if_real(database: Path, other: Path, cluster: str = "") -> Path:
    """A copy of a simulated database whose GPUs a driver might have named: nodes, work and ids of advice stay."""
    other.parent.mkdir(exist_ok=True)
    shutil.copy(database, other)
    with closing(sqlite3.connect(other)) as db, db:
        for table in ("gpu", "workload_use"):
            db.execute(f"UPDATE {table} SET gpu_uuid = replace(gpu_uuid, 'GPU-', 'GPU-{other.stem[:1]}')")
        db.execute("UPDATE node SET cluster = ?", [cluster])
    return other


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("simulated") / "founding.db"
    simulate("founding", path, days=2, seed=4, until=UNTIL, minutes_seconds=3600, nodes=("serve-01", "serve-02"))
    return path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Callable[..., tuple[str, str]]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def run_(*arguments: object, status: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        assert main([str(argument) for argument in arguments]) == status, capsys.readouterr().err
        reported = capsys.readouterr()
        return reported.out, reported.err

    return run_


def known(path: Path) -> Fleet:
    with State(path).reading() as db:
        return fleets_in(db)[0]


def test_an_id_of_two_fleets_is_asked_about_and_the_list_names_both(run, simulated: Path, tmp_path: Path) -> None:
    real = as_if_real(simulated, tmp_path / "real.db", "eu")
    id_ = json.loads(run("advise", "--db", simulated, "--format", "json")[0])["recommendations"][0]["id"]
    run("advise", "--db", real)
    said = run("ledger", "accept", id_, status=2)[1]
    assert f"{id_} is in 2 ledgers" in said and "--state" in said
    path, theirs = sorted((tmp_path / "state/skuwise").glob("*.db"))
    run("ledger", "accept", id_, "--ledger", path)
    text = run("ledger", "list")[0]
    assert f"Fleet eu ({path})" in text and "Fleet simulated " in text
    listed = json.loads(run("ledger", "list", "--all", "--format", "json")[0])["recommendations"]
    states = {(r["fleet"], r["state"]) for r in listed if r["id"] == id_}
    assert states == {("eu", "accepted"), (known(theirs).name, "proposed")}


def test_a_ledger_that_was_named_is_its_fleets(run, simulated: Path, tmp_path: Path) -> None:
    real, other = (as_if_real(simulated, tmp_path / name) for name in ("real.db", "other.db"))
    named, empty = tmp_path / "named.db", tmp_path / "empty.db"
    run("advise", "--db", real, "--ledger", named)
    run("advise", "--db", real, "--ledger", named)
    for database, why in ((simulated, "simulated and real telemetry"), (other, "no GPU in common")):
        before = named.read_bytes()
        out, said = run("advise", "--db", database, "--ledger", named, status=2)
        assert not out and why in said and "Remove --state" in said
        assert said.splitlines()[-1].count(named.name) == 1 and named.read_bytes() == before
    empty.touch()
    run("advise", "--db", other, "--ledger", empty)
    assert known(empty).members


HOUR = 3600.0
GRID = Grid(HOUR, 4 * HOUR, HOUR)
AWS = {"node": "i-0abc", "internal_ip": "10.0.3.1", "provider_id": "aws:///us-east-1a/i-0abc"}


def kube(*nodes: str, gpus: int = 8, cluster: str = "", pods: Mapping[str, str] | None = None) -> KubeState:
    """Nodes with GPUs, and pods that requested them by their node."""
    rows = [(cluster, node, "ml", pod, "main", "nvidia_com_gpu", 8.0, 0.0, HOUR) for pod, node in (pods or {}).items()]
    columns = ["cluster", "node", "namespace", "pod", "container", "resource", "count", "ts_start", "ts_end"]
    state = {(cluster, node): KubeNode(gpus, 0.0, HOUR) for node in nodes}
    return KubeState(state, pd.DataFrame(rows, columns=columns))


def device(uuid: str = "GPU-1", **labels: str) -> Labels:
    return {"UUID": uuid, **labels}


def identity_of(log: Log | None = None, state: KubeState | None = None, **evidence: Any) -> NodeIdentity:
    return NodeIdentity(log or Log(), state or KubeState(), **evidence)


EXPORTER = {"Hostname": "nvidia-dcgm-exporter-57pvc", "instance": "10.244.0.9:9400"}


@pytest.mark.parametrize(
    ("evidence", "labels", "node"),
    [
        # What the cluster knows as a node counts, whatever label it stands under.
        ({"state": kube("vmss0")}, {**EXPORTER, "node": "vmss0"}, "vmss0"),
        ({"state": kube("gpu-1.example.org")}, {"hostname": "gpu-1", "instance": "10.0.0.1:9400"}, "gpu-1"),
        # EKS: the machine's id, its host name, its address.
        ({"kube": [AWS], "state": kube("i-0abc")},
         {"Hostname": "ip-10-0-3-1.ec2.internal", "instance": "10.0.3.1:9400"}, "i-0abc"),
        ({"kube": [{**AWS, "node": "ip-10-0-3-1.ec2.internal"}], "state": kube("ip-10-0-3-1.ec2.internal")},
         {"Hostname": "i-0abc"}, "ip-10-0-3-1.ec2.internal"),
        ({"hosts": [{"instance": "10.0.3.1:9100", "nodename": "ip-10-0-3-1"}], "kube": [AWS], "state": kube("i-0abc")},
         {"Hostname": "ip-10-0-3-1"}, "i-0abc"),
        # A server that federates runs no GPU, and pods are where their GPUs are.
        ({"kube": [{"node": "monitor"}], "state": kube("gpu-1", pods={"train-0": "gpu-1"})},
         {"node": "monitor", "Hostname": "gpu-1"}, "gpu-1"),
        ({"state": kube("gpu-1", "gpu-2", pods={"train-0": "gpu-2"})}, {**EXPORTER, "pod": "train-0"}, "gpu-2"),
        ({"exporter_pods": [{"pod": EXPORTER["Hostname"], "node": "gpu-1"}], "state": kube("gpu-1", "gpu-2")},
         EXPORTER, "gpu-1"),
        ({"exporter_pods": [{"pod": "dcgm", "pod_ip": "10.244.0.9", "node": "gpu-1"}]}, EXPORTER, "gpu-1"),
        # One node is left, and it has as many GPUs.
        ({"state": kube("gpu-1", gpus=1)}, EXPORTER, "gpu-1"),
        # Without Kubernetes: a container's id, an exporter's pod and localhost are no nodes.
        ({}, {**EXPORTER, "node": "gpu-1"}, "gpu-1"),
        ({}, {"Hostname": "3f2a9c1b7d4e", "instance": "gpu-1:9400"}, "gpu-1"),
        ({}, {"Hostname": "localhost", "instance": "[::1]:9400"}, "localhost"),
        ({}, {}, None),
    ],
)  # fmt: skip
def test_a_node_is_named_by_all_evidence(evidence: dict[str, Any], labels: Labels, node: str | None) -> None:
    log = Log()
    assert identity_of(log, **evidence, targets=[device(**labels)]).node_of(device(**labels)) == node and not log.notes


DOMAINS = [("hpc1", "a"), ("hpc1.example.org", "a"), ("hpc1.other.org", "b"), ("10.0.0.1", "c"), ("10.0.0.2", "c")]


@pytest.mark.parametrize(
    ("targets", "state", "nodes"),
    [
        # A restarted exporter is on the node of its GPUs.
        (
            [device("GPU-1", Hostname="nvidia-dcgm-exporter-57pvc", pod="train-0"),
             *(device(uuid, Hostname=f"nvidia-dcgm-exporter-{end}")
               for uuid, end in (("GPU-2", "57pvc"), ("GPU-1", "q8w4z"), ("GPU-2", "q8w4z")))],
            kube("gpu-1", "gpu-2", gpus=2, pods={"train-0": "gpu-1"}), ["gpu-1"] * 4,
        ),
        # A host that gets its domain is one node by its GPUs.
        ([device(uuid, Hostname=name, instance=f"{name}:9400") for name, uuid in DOMAINS], None,
         ["hpc1", "hpc1", "hpc1.other.org", "10.0.0.1", "10.0.0.2"]),
    ],
)  # fmt: skip
def test_gpus_join_the_names_of_their_node(targets: list[Labels], state: KubeState | None, nodes: list[str]) -> None:
    identity = identity_of(targets=targets, state=state)
    assert [identity.node_of(labels) for labels in targets] == nodes


def test_clusters_with_equal_names_stay_apart_and_one_cluster_keeps_its_names() -> None:
    series = [device(f"GPU-{c}{n}", Hostname=n, cluster=c) for c, n in (("a", "n1"), ("a", "n2"), ("b", "n1"))]
    both = KubeState({**kube("n1", "n2", cluster="a").nodes, **kube("n1", cluster="b").nodes})
    for state in (both, KubeState(), kube("n1", "n2")):
        identity = identity_of(targets=series, state=state)
        assert [identity.node_of(labels) for labels in series] == ["a/n1", "n2", "b/n1"]
        assert identity.clusters["b/n1"] == "b" and identity.clusters.get("n2", "a") == "a"
    assert identity.node_of({"nodename": "n1", "k8s_cluster": "b"}) == "b/n1"
    assert [identity.named("", name) for name in ("n1", "n2")] == ["a/n1", "n2"], "Kubernetes' node is none of its own"
    assert identity_of(state=both).named("a", "n2") == "n2"


def test_labels_that_name_two_nodes_with_gpus_are_reported() -> None:
    log = Log()
    labels = device(Hostname="gpu-1", node="gpu-2")
    identity = identity_of(log, targets=[labels], state=kube("gpu-1", "gpu-2"))
    assert identity.node_of(labels) == "gpu-1" and [note.code for note in log.notes] == ["node-names-contradict"]


def test_what_node_exporter_and_kubernetes_say_joins_what_the_gpus_are_called() -> None:
    identity = identity_of(
        hosts=[{"instance": "10.0.0.1:9100", "nodename": "gpu-1.example.org"}], agents=["gpu-2"],
        targets=[device(Hostname="gpu-1")], state=kube("GPU-1.example.org", "gpu-2.example.org"),
    )  # fmt: skip
    assert identity.node_of({"instance": "10.0.0.1:9100"}) == "gpu-1" == identity.named("", "GPU-1.example.org")
    assert identity.named("", "gpu-2.example.org") == "gpu-2"
    assert identity.node_of({"instance": "cpu-9:9100"}) == "cpu-9"


def read(**offered: float) -> KubeState:
    """Kubernetes with one node and its resources, reported by two replicas of kube-state-metrics."""

    def ranges(asks: Sequence[Ask], _: int) -> Mapping[str, SeriesAnswer]:
        labels = [{"node": "n1", "resource": name} for name in offered for _ in range(2)]
        values = [[value] * 3 + [np.nan] for value in offered.values() for _ in range(2)]
        return {asks[0].name: SeriesAnswer(tuple(labels), np.array(values))}

    return read_kube(ranges, ["kube_node_status_capacity"], (), GRID, 1)


def table(state: KubeState, listed: int, labels: Mapping[str, str] | None = None, first: int = 0) -> pd.DataFrame:
    """The table `nodes` where an exporter lists so many GPUs, numbered from `first`."""
    cells: Cells[str] = Cells(GRID)
    cells.rows.update({f"GPU-{n}": n for n in range(listed)})
    cells.columns["observed_seconds"] = np.full((listed, 4), HOUR)
    about = {uuid: About("n1", n + first, "NVIDIA L40S", uuid=uuid) for uuid, n in cells.rows.items()}
    declared = {name: node for (_, name), node in state.nodes.items()}
    gpus, ports, identity = GpuRows(cells, about), PortRows(Cells(GRID)), identity_of()
    identity.labels["n1"] = labels or {}
    return node_table(gpus, ports, {}, None, identity=identity, catalog=load_catalog(), declared=declared)


@pytest.mark.parametrize(
    ("offered", "listed", "labels", "count"),
    [
        ({"nvidia_com_gpu": 8}, 7, {}, 8),
        ({"nvidia_com_gpu": 8}, 0, {}, 8),
        ({"nvidia_com_gpu": 16}, 4, {}, 4),  # time slicing under the GPUs' own name
        ({"nvidia_com_gpu": 80}, 7, {}, 7),
        ({"nvidia_com_gpu": 14}, 2, {}, 2),  # MIG under the GPUs' own name
        ({"nvidia_com_gpu": 0, "nvidia_com_gpu_shared": 16}, 4, {}, 4),
        ({"nvidia_com_gpu": 0, "nvidia_com_gpu_shared": 16}, 0, {}, 1),
        ({"nvidia_com_gpu": 0, "nvidia_com_gpu_shared": 16}, 0, {"label_nvidia_com_gpu_replicas": "4"}, 4),
        ({"nvidia_com_gpu": 32}, 7, {"label_nvidia_com_gpu_replicas": "4"}, 8),
        ({"nvidia_com_mig_1g_10gb": 14}, 0, {}, 2),
        ({"nvidia_com_gpu": 0.5}, 2, {}, 2),
    ],
)
def test_replicas_are_no_gpus_and_gpus_that_no_exporter_lists_are(
    offered: dict[str, float], listed: int, labels: dict[str, str], count: int
) -> None:
    assert table(read(**offered), listed, labels)["gpu_count"].tolist() == [count]
    # Their numbers show that others are missing.
    assert table(read(nvidia_com_gpu=8), 4, first=4)["gpu_count"].tolist() == [8]


def test_other_vendors_are_named_and_not_counted() -> None:
    state = read(amd_com_gpu=8, gpu_intel_com_i915=2)
    assert not state.nodes and table(state, 0).empty
    assert [(note.fields["vendor"], note.fields["gpus"]) for note in state.notes] == [("AMD", 8), ("Intel", 2)]
    assert {note.code for note in state.notes} == {"vendor-not-read"}


def test_a_node_is_there_from_the_first_to_the_last_report() -> None:
    nodes = table(read(nvidia_com_gpu=1), 0)
    assert nodes[["first_seen", "last_seen"]].to_numpy().tolist() == [[0.0, 3 * HOUR]]
