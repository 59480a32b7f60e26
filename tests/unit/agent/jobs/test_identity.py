"""Who this node is and what it is rented as, from trees."""

import os
from pathlib import Path
from typing import Any

import pytest
from skuwise.agent.config import AgentConfig
from skuwise.agent.jobs.identity import LABELS_FILE, identify
from skuwise.agent.jobs.processes import Listeners
from skuwise.agent.model import FabricPort, Gpu, Node, Role
from skuwise.rules.catalog.types import Fabric, FigureSource, NodeSku
from skuwise.tests.support.sysfs_trees import BOOT_ID, Procfs, Sysfs, put


def sku(
    name: str, gpu: str = "H100-SXM5", count: int = 8, fabric: str = "infiniband", rate: float | None = 400e9
) -> NodeSku:
    provider, instance_type = name.split("/")
    link = Fabric(fabric, rate, 8, fabric in ("infiniband", "roce", "efa"))
    return NodeSku(name, provider, instance_type, gpu, count, "nvswitch", link, 96, None, (), FigureSource("test"))


CATALOG = (
    sku("aws/p5.48xlarge", fabric="efa"),
    sku("azure/Standard_ND96isr_H100_v5"),
    sku("oci/BM.GPU.H100.8", fabric="roce"),
    sku("coreweave/gd-8xh100ib"),
    sku("lambda/gpu_8x_h100", fabric="ethernet", rate=12.5e9),
    sku("lambda/gpu_8x_h100_ib"),
    sku("nebius/gpu-h100", gpu="H100-PCIe", count=1, fabric="none", rate=None),
)
GPUS = tuple(Gpu(f"GPU-{i}", i, "NVIDIA H100 80GB HBM3", "H100-SXM5") for i in range(8))


def node(tmp_path: Path, **given: Any) -> Node:
    procfs = Procfs(tmp_path / "proc").root
    config = AgentConfig(node=given.pop("name", ""), sysfs=tmp_path / "sys", procfs=procfs)
    seen = {"environ": {}, "gpus": GPUS, "ports": ports(50e9), "node_skus": CATALOG} | given
    return identify(config, tmp_path / "etc", **seen)


def test_name_machine_boot_and_labels(tmp_path: Path) -> None:
    assert node(tmp_path, environ={"NODE_NAME": "k8s-7"}, name="c").node == "k8s-7"
    put(tmp_path / "etc/machine-id", "uninitialized")
    identity = node(tmp_path, name="c")
    assert (identity.node, identity.machine_id) == ("c", None)
    put(tmp_path / "etc/machine-id", "0123456789ABCDEF0123456789abcdef")
    put(tmp_path / "etc" / LABELS_FILE, 'topology.kubernetes.io/region="eu-north1"\nskuwise.io/node-sku="x/y"\nnoise')
    identity = node(tmp_path)
    assert (identity.node, identity.boot_id) == ("gpu-node-17", BOOT_ID)
    assert identity.machine_id == "0123456789abcdef0123456789abcdef"
    assert (identity.node_sku, identity.node_sku_source, identity.region) == ("x/y", "label", "eu-north1")
    put(tmp_path / "etc" / LABELS_FILE, 'node.kubernetes.io/instance-type="gd-8xh100ib"')
    identity = node(tmp_path)
    assert (identity.node_sku, identity.provider) == ("coreweave/gd-8xh100ib", "coreweave")


def ports(rate: float | None, role: Role = "compute") -> tuple[FabricPort, ...]:
    return tuple(FabricPort(f"mlx5_{i}", 1, role, "InfiniBand", rate) for i in range(8))


AZURE = ("Microsoft Corporation", "Virtual Machine", "7783-7084-3265-9085-8269-3286-77")
DELL = ("Dell Inc.", "PowerEdge XE9680", "")
PAIR = {"ports": (), "node_skus": (sku("a/b", count=2, fabric="none", rate=None),), "gpus": GPUS[:2]}


@pytest.mark.parametrize(
    ("dmi", "given", "provider", "sku", "source"),
    [
        # The firmware names a type or a provider; one without a mark rules marked providers out.
        (("Amazon EC2", "p5.48xlarge", ""), {}, "aws", "aws/p5.48xlarge", "dmi"),
        (AZURE, {}, "azure", "azure/Standard_ND96isr_H100_v5", "shape"),
        ((*AZURE[:2], ""), {}, None, None, "ambiguous-shape"),
        (("Google", "Google Compute Engine", ""), {}, "gcp", None, "unknown-shape"),
        (("", "", "OracleCloud.com"), {}, "oci", None, "unknown-shape"),
        (DELL, {"node_skus": CATALOG[:4]}, "coreweave", "coreweave/gd-8xh100ib", "shape"),
        # The fabric is part of the shape.
        (DELL, {"ports": ()}, "lambda", "lambda/gpu_8x_h100", "shape"),
        (DELL, {"ports": ports(25e9)}, None, None, "unknown-shape"),
        (DELL, {"ports": ports(None)}, None, None, "ambiguous-shape"),
        (DELL, {"ports": ports(50e9, "unknown")}, None, None, "ambiguous-shape"),
        # Of GPUs that are not there, or cannot be read, no shape is known.
        (DELL, PAIR, "a", "a/b", "shape"),
        (DELL, PAIR | {"unread_gpus": 1}, None, None, None),
        (DELL, {"gpus": ()}, None, None, None),
    ],
)
def test_firmware_and_shape_name_a_sku_where_one_alone_fits(
    tmp_path: Path, dmi: tuple[str, str, str], given: dict[str, Any], provider: str, sku: str, source: str
) -> None:
    Sysfs(tmp_path / "sys").dmi(sys_vendor=dmi[0], product_name=dmi[1], chassis_asset_tag=dmi[2])
    identity = node(tmp_path, **given)
    assert (identity.provider, identity.node_sku, identity.node_sku_source) == (provider, sku, source)
    assert sku is None or identity.instance_type == sku.partition("/")[2]
    assert identity.gpu_count == len(given.get("gpus", GPUS)) + given.get("unread_gpus", 0)


def table(root: Path, *rows: tuple[int, str, int]) -> None:
    """``net/tcp`` with (port, state, inode) rows."""
    lines = ["  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"]
    for port, state, inode in rows:
        queues = "00000000:00000000 00:00000000 00000000"
        lines.append(f"   0: 0100007F:{port:04X} 00000000:0000 {state} {queues} {os.getuid():5d} 0 {inode} 1")
    put(root / "net/tcp", "\n".join(lines))


def process(root: Path, pid: int, *, inode: int | None = None, argv: tuple[str, ...] = ("python",)) -> None:
    put(root / str(pid) / "cmdline", "\0".join(argv).encode() + b"\0")
    (root / str(pid) / "fd").mkdir()
    (root / str(pid) / "fd/3").symlink_to(f"socket:[{inode}]" if inode else "/dev/null")


def test_the_holder_of_the_listening_socket_and_that_it_is_found_anew(tmp_path: Path) -> None:
    table(tmp_path, (8000, "0A", 111), (8000, "01", 222), (8001, "0A", 333))
    process(tmp_path, 10, inode=111)
    process(tmp_path, 11, inode=222)
    process(tmp_path, 12, inode=333, argv=("vllm", "serve", "--port", "8000"))
    listeners = Listeners(tmp_path)
    assert listeners.pids(8000, 0.0) == frozenset({10})
    table(tmp_path, (8000, "0A", 222))
    assert listeners.pids(8000, 59.0) == frozenset({10})
    assert listeners.pids(8000, 60.0) == frozenset({11})
    # Where sockets are hidden the arguments count.
    table(tmp_path, (9000, "0A", 444))
    for pid, words in enumerate(("sglang --port=9000", "vllm serve m --port 9000", "vllm m --port 90001", "echo 9000")):
        process(tmp_path, 20 + pid, argv=tuple(words.split()))
    assert Listeners(tmp_path).pids(9000, 0.0) == frozenset({20, 21})
