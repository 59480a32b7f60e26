"""The image's own steps and the pod's own confinement, without a container engine.

A mount namespace stands for the container: an overlay over this machine is the base image, the Containerfile's steps
run in it as they stand, then the DaemonSet's mounts, variables, user and capabilities are given to the image's command.
What it cannot show: the NVIDIA runtime (the stub is the driver), seccomp, and a network of the pod's own.

Needs root, an overlay file system, unshare, nsenter, setpriv, and an index for pip. Skipped, with the reason, without.
"""

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from skuwise.tests.integration.agent.jobs.test_podresources import KubeletServer
from skuwise.tests.support.containerfile import Instruction, every, stages, variables
from skuwise.tests.support.stored_rows import rows
from skuwise.tests.system.machine import skip_without, stub_library, until

pytestmark = [pytest.mark.system]

PROJECT = Path(__file__).parents[2]
IMAGE = PROJECT / "deploy/container/Containerfile"
DAEMONSET = PROJECT / "deploy/kubernetes/daemonset.yaml"
# The base image's interpreter is this machine's.
BASE = Path(sys.base_prefix) / "bin"
PATH = f"{BASE}:/usr/sbin:/usr/bin:/sbin:/bin"
NO_INDEX = ("No matching distribution", "Could not find a version", "ConnectionError", "NewConnectionError")
NODE = "gpu-node-7"
SCENARIO = "[gpu 0-1]\nname = NVIDIA H100 80GB HBM3\ngpu_util = 0.5\nsm_active = 0.25\n"


class Container:
    """A mount namespace with an overlay over this machine at `root`. `node` stands for the node's own folders."""

    def __init__(self, folder: Path) -> None:
        self.root, self.node = folder / "root", folder / "node"
        for path in (self.root, self.node, folder / "upper", folder / "work"):
            path.mkdir()
        self._holder = subprocess.Popen(["unshare", "--mount", "--propagation=private", "sleep", "infinity"])
        until(lambda: Path(f"/proc/{self._holder.pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink())
        layers = f"lowerdir=/,upperdir={folder / 'upper'},workdir={folder / 'work'}"
        self.within("mount", "-t", "overlay", "overlay", "-o", layers, str(self.root), skip="no overlay can be mounted")
        for name in ("proc", "dev"):
            self.within("mount", "--rbind", f"/{name}", str(self.root / name))

    def enter(self, *command: str) -> list[str]:
        return ["nsenter", "-t", str(self._holder.pid), "-m", "--", *command]

    def within(self, *command: str, skip: str = "", where: tuple[str, ...] = ("",)) -> None:
        """Run it, and skip where it fails without something: stderr then has one of the words `where`."""
        done = subprocess.run(self.enter(*command), capture_output=True, text=True, check=False)
        if done.returncode != 0 and skip and any(word in done.stderr for word in where):
            pytest.skip(f"{skip}: {done.stderr.strip()[-300:]}")
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"

    def shell(self, text: str) -> None:
        command = ("chroot", str(self.root), "/usr/bin/env", f"PATH={PATH}", "sh", "-c", text)
        self.within(*command, skip="pip has no index", where=NO_INDEX)

    def mount(self, volume: dict[str, Any], mount: dict[str, Any]) -> None:
        """One of the pod's mounts, as the kubelet makes it."""
        place = str(self.root / mount["mountPath"].lstrip("/"))
        if "emptyDir" in volume:
            size = volume["emptyDir"]["sizeLimit"].removesuffix("i")
            self.within("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place)
            return
        path = volume["hostPath"]["path"] if "hostPath" in volume else "/settings"
        self.within("mount", "--rbind", path if path.startswith("/sys/") else f"{self.node}{path}", place)
        if mount.get("readOnly"):
            self.within("mount", "-o", "remount,bind,ro", place)

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()


@pytest.fixture
def container() -> Iterator[Container]:
    skip_without("unshare", "nsenter", "setpriv", "chroot")
    # A socket's path has room for 107 characters, fewer than pytest's own folders leave.
    with tempfile.TemporaryDirectory(prefix="pod-") as folder:
        made = Container(Path(folder))
        try:
            yield made
        finally:
            made.close()


def perform(container: Container, steps: list[Instruction], workdir: str = "/") -> None:
    """A stage's COPY from the tree and RUN, as an engine would."""
    for step in steps:
        if step.name == "WORKDIR":
            workdir = step.text
            container.shell(f"mkdir -p {workdir}")
        elif step.name == "COPY" and not step.text.startswith("--from"):
            *sources, target = step.words
            folder = f"{container.root}{workdir}/{target}"
            for source in sources:
                place = folder if (PROJECT / source).is_dir() else f"{folder}/{Path(source).name}"
                container.within("cp", "-r", str(PROJECT / source), place)
        elif step.name == "RUN":
            container.shell(f"set -e; cd {workdir}; {step.text}")


def bring_the_driver(container: Container) -> dict[str, str]:
    """What the NVIDIA runtime does: the driver's library, here the stub's."""
    scenario = container.node / "scenario"
    scenario.write_text(SCENARIO)
    container.shell("mkdir -p /opt/nvml")
    for file in (stub_library(), scenario):
        container.within("cp", str(file), str(container.root / "opt/nvml"))
    return {"LD_LIBRARY_PATH": "/opt/nvml", "SKUWISE_NVML_SCENARIO": "/opt/nvml/scenario"}


def test_the_steps_of_the_image_and_the_pod_make_an_agent_that_reads_and_may_do_nothing_else(
    container: Container,
) -> None:
    _, building, final = stages(IMAGE)
    container.shell(f"test -e {BASE}/python || ln -s python3 {BASE}/python")
    perform(container, building)
    container.shell("rm -r /opt/build")  # the final stage has /opt/skuwise alone
    assert [entry.words[1:] for entry in every(final, "COPY")] == [["/opt/skuwise"] * 2]
    perform(container, final)

    # The pod: its folders, mounts, variables, user and capabilities.
    pod = next(element for element in yaml.safe_load_all(DAEMONSET.read_text()) if element["kind"] == "DaemonSet")
    pod = pod["spec"]["template"]["spec"]
    (agent,) = pod["containers"]
    driver = bring_the_driver(container)
    for folder in ("settings", "var/lib/kubelet/pod-resources", "var/lib/skuwise", "etc"):
        (container.node / folder).mkdir(parents=True)
    shutil.copy(DAEMONSET.with_name("skuwise.toml"), container.node / "settings")
    (container.node / "etc/machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    database = container.node / "var/lib/skuwise/skuwise.db"
    volumes = {candidate["name"]: candidate for candidate in pod["volumes"]}
    for mount in agent["volumeMounts"]:
        path = mount["mountPath"]
        container.shell(f"touch {path}" if path == "/etc/machine-id" else f"mkdir -p {path}")
    container.within("mount", "-o", "remount,ro", str(container.root))
    for mount in agent["volumeMounts"]:
        container.mount(volumes[mount["name"]], mount)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fields = {"spec.nodeName": NODE, "status.podIP": "127.0.0.1"}
    given = {
        record["name"]: fields[record["valueFrom"]["fieldRef"]["fieldPath"]]
        for record in agent["env"]
        if "valueFrom" in record
    }
    given["SKUWISE_LISTEN"] = f"127.0.0.1:{port}"  # the port's own number may be taken here
    environment = {"PATH": PATH, "KUBERNETES_SERVICE_HOST": "10.96.0.1"} | variables(final) | given | driver
    assert agent["securityContext"]["capabilities"]["drop"] == ["ALL"]
    confined = [
        "setpriv", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs",
    ]  # fmt: skip

    def command(*inner: str) -> list[str]:
        return container.enter("chroot", str(container.root), *confined, "--", *inner)

    def ends_with(*inner: str) -> int:
        return subprocess.run(command(*inner), env=environment, capture_output=True, check=False).returncode

    start = every(final, "ENTRYPOINT")[0].command
    health = every(final, "HEALTHCHECK")[0].command
    assert ends_with("touch", "/opt/skuwise/x") == 1 and ends_with("touch", "/host/sys/x") == 1
    # Nothing of the node's sysfs can be written (but what is mounted in /sys/fs/cgroup: cgroups of version 1).
    mounted = subprocess.run(command("cat", "/proc/self/mountinfo"), capture_output=True, text=True, check=True).stdout
    sysfs = [line.split() for line in mounted.splitlines() if line.split()[4].startswith("/host/sys/")]
    flags = [sysf[5].split(",") for sysf in sysfs if "/fs/cgroup/" not in sysf[4]]
    assert len(flags) == 6 and all("ro" in flag for flag in flags)
    assert ends_with(*health) == 1  # no agent yet

    kubelet = KubeletServer(container.node / "var/lib/kubelet/pod-resources/kubelet.sock")
    log = container.node / "log"
    with log.open("wb") as output:
        running = subprocess.Popen(command(*start, *agent["args"]), env=environment, stderr=output)
    try:

        def answer(path: str) -> tuple[int, str]:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as page:
                return page.status, page.read().decode()

        def healthy() -> bool:
            assert running.poll() is None, log.read_text()
            with contextlib.suppress(OSError):
                return answer(agent["livenessProbe"]["httpGet"]["path"])[0] == 200
            return False

        until(healthy)
        assert ends_with(*health) == 0
        until(lambda: "skuwise_gpu_sm_active_seconds_total{" in answer("/metrics")[1])
        kubelet.pods(("llama-0", (str(rows(database, "SELECT gpu_uuid FROM gpus")[0][0]),)))
        until(lambda: bool(rows(database, "SELECT 1 FROM workload_gpus WHERE basis = 'allocation'")))
        status = Path(f"/proc/{running.pid}/status").read_text()
        for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"):
            assert line in status
        tree = [psutil.Process(running.pid), *psutil.Process(running.pid).children(recursive=True)]
        resident = sum(process.memory_info().rss for process in tree)
        limit = int(agent["resources"]["limits"]["memory"].removesuffix("Mi")) << 20
        assert len(tree) == 2 and resident < limit / 2, f"{resident / 1e6:.0f} MB resident"
    finally:
        running.terminate()
        running.wait(timeout=60)
        kubelet.stop()
    assert running.returncode == 0 and "late" not in log.read_text(), log.read_text()
    assert rows(database, "SELECT node, machine_id FROM nodes") == [(NODE, "0123456789abcdef0123456789abcdef")]
    assert rows(database, "SELECT DISTINCT namespace, pod FROM workloads") == [("ml", "llama-0")]
    assert rows(database, "SELECT count(DISTINCT gpu_uuid) FROM gpu_hours") == [(2,)]
    assert not list((container.node / "var/lib/skuwise").glob("*.sock"))
