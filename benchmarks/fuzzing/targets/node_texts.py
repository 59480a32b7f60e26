"""What a node tells of itself: /proc, sysfs, cgroups, node labels; and Slurm's settings and its prolog's files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from ..documents import by_json
from ..lines import by_lines
from ..target import BrokenPromiseError, Mutator, Prepared, Seed, Target
from ..verdict import finite

PID = 4711
_STAT = (
    "4711 (a) b) S 1 4711 4711 0 -1 4194304 100 0 0 0 10 5 0 0 20 0 1 0 123456 1000000 200 18446744073709551615 1 1 0 "
    "0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n"
)
_TEXTS: dict[str, str] = {
    "proc/4711/stat": _STAT,
    "proc/4711/status": "Name:\ta\nUid:\t1000\t1000\t1000\t1000\nGid:\t1\n",
    "proc/4711/cgroup": "0::/system.slice/slurmstepd.scope/job_22/step_0/user/task_0\n12:devices:/slurm/uid_1/job_22\n",
    "proc/4711/cmdline": "python\0train.py\0--password\0geheim\0--lr=1\0",
    "proc/4711/environ": "SLURM_JOB_ID=22\0SLURM_JOB_GPUS=0,1\0CUDA_VISIBLE_DEVICES=0\0SLURM_JOB_NAME=a b\0HOME=/x\0",
    "proc/uptime": "12345.67 9999.00\n",
    "proc/stat": "cpu  100 2 300 4000 50 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\nintr 1\nbtime 1790000000\n",
    "proc/meminfo": "MemTotal:       1056432 kB\nMemFree: 5 kB\nMemAvailable:     756432 kB\nBuffers: 1 kB\n",
    "proc/diskstats": "   8       0 sda 100 0 2000 5 60 0 7000 8 0 9 10\n   8 1 sda1 1 0 2 5 6 0 7 8 0 9 10\n",
    "proc/devices": "Character devices:\n  1 mem\n195 nvidia\n235 nvidia-caps\n\nBlock devices:\n  8 sd\n",
    "proc/mounts": "/dev/sda / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\nx:/y /mnt/a\\040b nfs4 rw 0 0\n",
    "proc/net/tcp": (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1\n"
    ),
    "proc/net/route": "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
    "eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\n",
    "proc/driver/nvidia-caps/mig-minors": "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\n",
    "sys/fs/cgroup/devices/slurm/uid_1000/job_22/devices.list": "c 195:0 rwm\nc 195:255 rw\nb 8:* r\nc *:* m\n",
    "sys/fs/cgroup/devices/slurm/devices.list": "a *:* rwm\n",
    "sys/class/net/eth0/speed": "100000\n",
    "sys/class/net/eth0/operstate": "up\n",
    "sys/class/net/eth0/type": "1\n",
    "sys/class/net/eth0/statistics/rx_bytes": "123456789\n",
    "sys/class/net/eth0/statistics/tx_bytes": "987654321\n",
    "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
    "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
    "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
    "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data": "123456\n",
    "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data": "654321\n",
    "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_wait": "7\n",
    "sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
    "sys/class/dmi/id/product_name": "p5.48xlarge\n",
    "etc/skuwise/node-labels": 'node.kubernetes.io/instance-type="p5.48xlarge"\n'
    'topology.kubernetes.io/region="us-east-1"\n',
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "proc/sys/kernel/random/boot_id": "01234567-89ab-cdef-0123-456789abcdef\n",
    "drained": "maintenance until Friday\n",
    "proc/version": "580.95.05\n",
}  # fmt: skip


def _tree(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for name in ("sys/block/sda/device", "proc/4711/fd", "sys/class/net/eth0/device", "sys/devices"):
        (folder / name).mkdir(parents=True, exist_ok=True)


def _prepare(folder: Path) -> Prepared:
    from skuwise.agent.inventory.identity import identity
    from skuwise.agent.inventory.identity.drained import drained
    from skuwise.agent.inventory.processes import device_cgroup, procfs
    from skuwise.agent.inventory.processes.cgroups import origin_of
    from skuwise.agent.inventory.processes.environ_helper import answer
    from skuwise.agent.inventory.processes.listening_sockets import Listeners
    from skuwise.agent.inventory.redaction import redact
    from skuwise.agent.model import Instant
    from skuwise.agent.service.runtime.db_lock import _read as read_holder
    from skuwise.agent.sources.fabric.ethernet import EthernetSource
    from skuwise.agent.sources.fabric.infiniband import InfinibandSource
    from skuwise.agent.sources.host import HostSource
    from skuwise.agent.store.file.filesystem_check import file_system
    from skuwise.rules.catalog.loader import load_catalog

    _tree(folder, _TEXTS)
    proc, sys_, etc = folder / "proc", folder / "sys", folder / "etc"
    skus = tuple(load_catalog().nodes.values())

    def process() -> object:
        found = procfs.read_process(proc, PID)
        if found is not None:
            command = redact.redact_command(found.argv)
            if "geheim" in command and found.argv.count("geheim") == 1 and found.argv[2:4] == ("--password", "geheim"):
                raise BrokenPromiseError("a password is kept")
            finite((found.stat, origin_of(found.cgroup), command), "a process")
        variables = procfs.read_variables(proc, PID)
        finite(variables, "a variable")
        json.loads(answer(proc, b"4711\n"))
        return found, procfs.read_start_ticks(str(proc), PID), procfs.start_seconds(proc, 100, 1.79e9)

    def host() -> object:
        source = HostSource(proc, sys_, 10.0)
        source.probe()
        seen = [source.read(Instant(1.79e9 + n, float(n))) for n in range(2)]
        source.close()
        finite([reading.host for reading in seen], "a reading of the host")
        return seen

    def devices() -> object:
        return device_cgroup.read_majors(proc), device_cgroup.job_lists(sys_ / "fs/cgroup", "22")

    def node() -> object:
        found = identity.identify(
            config_node="", config_cluster="", config_sku="", sysfs=sys_, procfs=proc, etc=etc,
            environ={"NODE_NAME": "n"}, gpus=(), node_skus=skus,
        )  # fmt: skip
        finite(found, "a node")
        return found

    def network(make: Callable[[], object]) -> Callable[[], object]:
        def read() -> object:
            source = make()
            source.probe()  # type: ignore[attr-defined]
            seen = [source.read(Instant(1.79e9 + n, float(n))) for n in range(2)]  # type: ignore[attr-defined]
            source.close()  # type: ignore[attr-defined]
            finite([reading.fabric for reading in seen], "a reading of a port")
            return seen

        return read

    ethernet = network(lambda: EthernetSource(sys_, proc, 10.0, {}))
    infiniband = network(lambda: InfinibandSource(sys_, tuple, 10.0, {}))

    def holder() -> object:
        fd = os.open(folder / "holder", os.O_RDONLY)
        try:
            return read_holder(fd)
        finally:
            os.close(fd)

    whose: dict[str, Callable[[], object]] = {}
    for name in _TEXTS:
        whose[name] = (
            process if name.startswith("proc/4711/") or name == "proc/uptime"
            else host if name in ("proc/stat", "proc/meminfo", "proc/diskstats")
            else devices if name == "proc/devices" or "cgroup/devices" in name
            else ethernet if "class/net" in name or name == "proc/net/route"
            else infiniband if "infiniband" in name
            else (lambda: Listeners(proc).pids(8000, 1.0)) if name == "proc/net/tcp"
            else (lambda: file_system(Path("/mnt/a b/x.db"), (proc / "mounts").read_text("utf-8", "replace")))
            if name == "proc/mounts"
            else (lambda: finite(drained(folder / "drained"), "an absence")) if name == "drained"
            else node
        )  # fmt: skip
    whose["holder"] = holder
    (folder / "holder").write_text('{"pid": 1, "started": 2, "restarted_at": 3.0, "paused_until": 4.0}')
    texts = by_lines(b"cpu 1 2 3 4 5 6 7 8", b"c 195:0 rwm", b"a *:* rwm", b"\xd9\xa3", b"\xc2\xb2", b"0::/", b"Uid:\t",
                     b"kubepods-burstable-pod1b8a_1.slice", b"SLURM_JOB_ID=22\0")  # fmt: skip
    trees = by_json()

    def read(name: str, data: bytes) -> object:
        path = folder / name
        path.write_bytes(data)
        try:
            return whose[name]()
        finally:
            path.write_text(_TEXTS.get(name, "{}"), encoding="utf-8")

    mutate: Mutator = lambda draw, seed, seeds: (trees if seed.name == "holder" else texts)(draw, seed, seeds)  # noqa: E731
    seeds = [Seed(name, text.encode()) for name, text in _TEXTS.items()]
    return Prepared([*seeds, Seed("holder", (folder / "holder").read_bytes())], read, mutate)


_SLURM: dict[str, str] = {
    "slurm.conf": (
        "ClusterName=lab\nTaskPlugin=task/cgroup,task/affinity\nGresTypes=gpu\n"
        "NodeName=gpu[01-04] CPUs=8 Gres=gpu:h100:4,gpu:a100:2 \\\n  RealMemory=1000 State=UNKNOWN\n"
        "PartitionName=main Nodes=ALL Default=YES # comment\n"
    ),
    "gres.conf": (
        "AutoDetect=off\nNodeName=gpu[01-04] Name=gpu Type=h100 File=/dev/nvidia[0-3] Cores=0-3\n"
        "Name=gpu Type=a100 File=/dev/nvidia4,/dev/nvidia5 MultipleFiles=/dev/nvidia4,/dev/nvidia-caps/nvidia-cap12\n"
    ),
    "cgroup.conf": "ConstrainDevices=yes\nCgroupPlugin=autodetect\n",
    "22-0.job": (
        "version=2\njob_id=22\ngpus=0,2-3\nrestarts=0\nsluid=s0123456789AB\nstart=1790000000\nuid=1000\nuser=ann\n"
        "account=ml\nname=a b\npartition=main\nqos=normal\ncluster=lab\nnode=gpu01\narray_job_id=20\narray_task_id=7\n"
        "conf=/etc/slurm/slurm.conf\ncomplete=1\n"
    ),
    "hostlist": "gpu[01-04,07],login1,a[1-2]b[3-4]",
    "devices": "0,2-3,GPU-01234567-89ab,MIG-01234567",
}


def _prepare_slurm(folder: Path) -> Prepared:
    from skuwise.agent.inventory.identity.hostlist import LIMIT, expand
    from skuwise.agent.inventory.slurm.job_files import parse_devices, read_job_files
    from skuwise.agent.inventory.slurm.slurm_conf import read_gres
    from skuwise.agent.slurm_jobs.choice import expand_node_list

    conf, jobs = folder / "conf", folder / "jobs"
    conf.mkdir()
    jobs.mkdir(mode=0o700)
    for name in ("slurm.conf", "gres.conf", "cgroup.conf"):
        (conf / name).write_text(_SLURM[name])
    uids = frozenset({os.geteuid()})

    def read(name: str, data: bytes) -> object:
        text = data.decode("utf-8", "replace")
        if name == "hostlist":
            found = expand(text), expand_node_list(text)
            if found[0] is not None and len(found[0]) > LIMIT:
                raise BrokenPromiseError("more names than the limit")
            return found
        if name == "devices":
            return parse_devices(text)
        if name.endswith(".job"):
            path = jobs / name
            path.write_bytes(data)
            path.chmod(0o600)
            told = read_job_files(jobs, uids)
            finite(told, "a job file")
            return told
        (conf / name).write_bytes(data)
        try:
            return read_gres(conf, "gpu01")
        finally:
            (conf / name).write_text(_SLURM[name])

    words = (b"Include /etc/passwd", b"NodeName=gpu[01-999999999]", b"File=/dev/nvidia[0-99999999]",
             b"gpu[1-4096]", b"[[1-2]]", b"a[1-64]" * 4, b"complete=1\n", b"gpus=0-9999", b"AutoDetect=nvml",
             b"Gres=gpu:9999999999", b"Gres=gpu:h100:4(S:0-1)", b"Count=4", b"Count=99999999999999999999", b"Count=4K",
             b"Name=gpu File=/dev/nvidia[0-3", b"\\\n")  # fmt: skip
    return Prepared([Seed(name, text.encode()) for name, text in _SLURM.items()], read, by_lines(*words))


NODE = Target("node", "/proc, sysfs, cgroups, labels of a node (agent/inventory, agent/sources)", _prepare)
SLURM = Target("slurm", "slurm.conf, gres.conf, prolog files, host lists (agent/inventory)", _prepare_slurm)
