"""The image and the manifests name what exists: files, flags, settings, paths, ports and labels."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from skuwise.advisor.notify.routes import load_mail_settings
from skuwise.advisor.watch.settings import load_watch_settings
from skuwise.agent.cli import agent as agent_group
from skuwise.agent.config import SYSTEM_FILE, AgentConfig, load_config
from skuwise.tests.support.containerfile import every, stages

ROOT = Path(__file__).parents[3]
KUBERNETES = ROOT / "deploy/kubernetes"
IMAGE = ROOT / "deploy/container/Containerfile"
ADVISOR_IMAGE = ROOT / "deploy/container/advisor.Containerfile"
CONTAINERFILES = [IMAGE, ADVISOR_IMAGE, ROOT / "deploy/standalone/Containerfile"]
POD_IP = "10.0.3.7"

Manifest = dict[str, Any]


def manifests() -> dict[str, Manifest]:
    """By kind; each kind occurs once."""
    files = [path for path in KUBERNETES.glob("*.yaml") if path.name != "kustomization.yaml"]
    documents = [document for path in files for document in yaml.safe_load_all(path.read_text())]
    kinds = {document["kind"]: document for document in documents}
    assert len(kinds) == len(documents)
    return kinds


@pytest.fixture
def pod() -> Manifest:
    return manifests()["DaemonSet"]["spec"]["template"]["spec"]


@pytest.mark.parametrize("path", CONTAINERFILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_the_build_copies_is_there_and_is_all_that_the_wheel_needs(path: Path) -> None:
    before, build, _ = stages(path)
    copied = {source for line in every(build, "COPY") for source in line.words[:-1]}
    assert [source for source in sorted(copied) if not (ROOT / source).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {name.split(".")[1] for name in project["tool"]["setuptools"]["packages"] if "." in name}
    data = {pattern.split("/")[0] for pattern in project["tool"]["setuptools"]["package-data"]["skuwise"]}
    files = {project["project"]["readme"], *project["project"]["license-files"], "pyproject.toml"}
    assert folders | data | files | {"__init__.py", "__main__.py", "requirements"} <= copied
    (base,) = every(before, "ARG")
    assert re.fullmatch(r"BASE=[a-z]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}", base.text), "a tag may be moved"


def test_the_pod_sees_the_node_and_takes_no_gpu(pod: Manifest) -> None:
    (agent,) = pod["containers"]
    assert pod["hostPID"] is True and not pod.get("hostNetwork") and not pod.get("hostIPC")
    assert pod["runtimeClassName"] == "nvidia"
    assert pod["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    assert {"operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
    names = {
        variable["name"]: variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        for variable in agent["env"]
    }
    assert names["NODE_NAME"] == "spec.nodeName" and names["POD_IP"] == "status.podIP"


def test_every_path_of_the_settings_lies_on_what_is_mounted(pod: Manifest) -> None:
    (agent,) = pod["containers"]
    # What the agent in the pod makes of the ConfigMap and its environment, by its own loader.
    values = {variable["name"]: variable.get("value", "").replace("$(POD_IP)", POD_IP) for variable in agent["env"]}
    command, *flags = agent["args"]
    options = agent_group.commands[command].make_context(command, flags).params
    config = load_config(options, values, system_file=KUBERNETES / SYSTEM_FILE.name, config_home=Path("/nonexistent"))
    mounts = {mount["name"]: mount for mount in agent["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert mounts.keys() == volumes.keys()
    at = {name: Path(mount["mountPath"]) for name, mount in mounts.items()}
    host = {name: volume["hostPath"]["path"] for name, volume in volumes.items() if "hostPath" in volume}
    writable = {at[name] for name, mount in mounts.items() if not mount.get("readOnly")}
    # A folder that other file systems are mounted in would bring them along, and not read-only.
    sysfs = {path.removeprefix("/sys/"): name for name, path in host.items() if path.startswith("/sys")}
    assert sysfs.keys() == {"block", "bus", "class", "devices", "module", "fs/cgroup"}
    assert all(at[name] == config.sysfs / folder for folder, name in sysfs.items())
    assert config.procfs == Path("/proc")
    assert config.pod_resources.parent == at["pod-resources"] == Path(host["pod-resources"])
    assert config.db.parent == at["database"] == config.drained_marker.parent and at["database"] in writable
    assert config.control_socket.parent == at["run"] and at["run"] in writable
    assert at["settings"] == SYSTEM_FILE.parent
    assert at["machine-id"] == Path("/etc/machine-id")
    assert volumes["database"]["hostPath"]["type"] == "DirectoryOrCreate"


@pytest.mark.parametrize("kind", ["DaemonSet", "Deployment"])
def test_the_pods_may_do_nothing_that_they_do_not_need(kind: str) -> None:
    pod = manifests()[kind]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert manifests()["ServiceAccount"]["automountServiceAccountToken"] is False
    # Services of the cluster would be taken for settings.
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {name for amounts in container["resources"].values() for name in amounts} == {"cpu", "memory"}
    host = {volume["name"] for volume in pod["volumes"] if "hostPath" in volume} - {"database"}
    assert all(mount["readOnly"] for mount in container["volumeMounts"] if mount["name"] in host)
    if kind == "Deployment":
        assert not host and not {"hostPID", "hostNetwork", "hostIPC", "serviceAccountName"} & pod.keys()
        assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 65532)


def test_the_packages_settings_are_the_agents_defaults(tmp_path: Path) -> None:
    file = tmp_path / "skuwise.toml"
    file.write_text(re.sub(r"^# (?=\w+ = )", "", (ROOT / "deploy/packages/skuwise.toml").read_text(), flags=re.M))
    config = load_config({}, {}, system_file=file, config_home=tmp_path)
    assert config.listen is not None and replace(config, listen=None) == AgentConfig()


@pytest.mark.parametrize("suggested", [False, True], ids=["as it is", "with every suggestion"])
def test_the_watchs_settings_are_settings(tmp_path: Path, suggested: bool) -> None:
    text = manifests()["ConfigMap"]["data"]["skuwise.toml"]
    file = tmp_path / "skuwise.toml"
    file.write_text(re.sub(r"^# (?=\w+ = )", "", text, flags=re.MULTILINE) if suggested else text)
    report = load_mail_settings({}, system_file=file, config_home=tmp_path)
    watch = load_watch_settings({}, system_file=file, config_home=tmp_path)
    assert report.prometheus and watch.send is False
    assert (bool(report.smtp_host), bool(watch.alertmanager_url)) == (suggested, suggested)
