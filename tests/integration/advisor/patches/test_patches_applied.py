"""Patches in the real kubectl and GNU patch: applied to sample manifests and scripts, undone, and compared."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from skuwise.tests.support.patch_cases import patch_of
from skuwise.tests.support.patch_samples import (
    BATCH_SCRIPT,
    CLUSTER_QUEUE,
    DEPLOYMENT,
    JOB,
    KUBERNETES_ACTIONS,
    ONE_GPU_SCRIPT,
    SAMPLES,
    sample,
)
from skuwise.tests.support.prometheus_engines import needed


def patched(folder: Path, manifest: str, patch: str, kind: str) -> str:
    """A manifest with a patch applied by ``kubectl patch --local``, as YAML."""
    needed("kubectl")
    source, change = folder / "manifest.yaml", folder / "change.yaml"
    source.write_text(manifest)
    change.write_text(patch)
    command = ["kubectl", "patch", "--local", "-f", source, "--type", kind, "--patch-file", change, "-o", "yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def plain(manifest: str, folder: Path, kind: str = "merge") -> Any:
    """A manifest as kubectl understands it."""
    return yaml.safe_load(patched(folder, manifest, "{}", kind))


def holds(action: str, manifest: dict) -> None:
    """What each action asks for is there."""
    spec = manifest["spec"]
    holder = spec.get("pytorchReplicaSpecs", {"Worker": spec})["Worker"]
    pod = holder["template"]["spec"]
    (container,) = [held for held in pod["containers"] if held["name"] != "proxy"]
    match action:
        case "move-sku" | "swap-placement":
            assert pod["nodeSelector"]["node.kubernetes.io/instance-type"] == "Standard_ND96is_H100_v5"
            assert "instance-type" not in str(pod.get("affinity"))
        case "reduce-gpus":
            assert holder.get("replicas", holder.get("parallelism")) == 1
            assert int(container["resources"]["limits"]["nvidia.com/gpu"]) == 8
        case "mig-slice":
            assert all("nvidia.com/gpu" not in held for held in container["resources"].values())
            assert int(container["resources"]["limits"]["nvidia.com/mig-1g.10gb"]) == 1
        case "rest-clocks":
            assert {"name": "CUDA_DISABLE_PERF_BOOST", "value": "1"} in container["env"]
        case "release":
            assert spec.get("replicas") == 0 or spec.get("suspend") or spec["runPolicy"]["suspend"]


@pytest.mark.parametrize("action", KUBERNETES_ACTIONS)
@pytest.mark.parametrize(("text", "kind"), SAMPLES.items(), ids=lambda text: text.partition("kind: ")[2].split("\n")[0])
def test_a_patch_is_applied_and_undone_field_by_field(action: str, text: str, kind: str, tmp_path: Path) -> None:
    manifest = sample(text, action)
    made = patch_of(action, "kubernetes", ("chat.yaml", manifest))
    after = patched(tmp_path, manifest, "# head\n" + made.patch.text, kind)
    holds(action, yaml.safe_load(after))
    assert yaml.safe_load(patched(tmp_path, after, made.undo.text, kind)) == plain(manifest, tmp_path)
    fixed = text is JOB and action not in ("release", "reduce-gpus")  # a Job's pods cannot be changed
    assert f"--type {kind}" in made.apply and ("--local" in made.apply) is fixed


@pytest.mark.parametrize("action", KUBERNETES_ACTIONS)
def test_a_patch_without_the_manifest_is_applied_and_undone(action: str, tmp_path: Path) -> None:
    manifest = sample(DEPLOYMENT, action).replace(
        "node.kubernetes.io/instance-type: Standard_ND96isr_H100_v5", "zone: a"
    )
    made = patch_of(action, "kubernetes")
    after = patched(tmp_path, manifest, made.patch.text, "strategic")
    holds(action, yaml.safe_load(after))
    undone = yaml.safe_load(patched(tmp_path, after, made.undo.text, "strategic"))
    assert str(undone).replace("'1'", "1") == str(plain(manifest, tmp_path)).replace("'1'", "1")  # a count is a number


@pytest.mark.parametrize(
    ("action", "left", "other"),
    [("move-sku", 16, 24), ("reduce-gpus", 24, 8), ("release", 16, 8), ("consolidate", 24, 8)],
)
def test_quotas_of_a_cluster_queue_are_changed_and_restored(action: str, left: int, other: int, tmp_path: Path) -> None:
    made = patch_of(action, "kueue", ("queue.yaml", CLUSTER_QUEUE), flavor="h100-ib", target_flavor="h100")
    after = patched(tmp_path, CLUSTER_QUEUE, made.patch.text, "merge")
    (group,) = yaml.safe_load(after)["spec"]["resourceGroups"]
    quotas = [[(entry["name"], int(entry["nominalQuota"])) for entry in f["resources"]] for f in group["flavors"]]
    assert quotas == [[("cpu", 960), ("nvidia.com/gpu", left)], [("cpu", 96), ("nvidia.com/gpu", other)]]
    assert yaml.safe_load(patched(tmp_path, after, made.undo.text, "merge")) == plain(CLUSTER_QUEUE, tmp_path)


def applied(text: bytes, change: str, folder: Path) -> bytes:
    """A file after the real ``patch``."""
    needed("patch")
    file, diff = folder / "file", folder / "change.diff"
    file.write_bytes(text)
    diff.write_bytes(b"# head, which patch skips\n" + change.encode())
    done = subprocess.run(["patch", file, diff], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "fuzz" not in done.stdout and "offset" not in done.stdout, done.stdout + done.stderr
    return file.read_bytes()


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("action", "asked", "script", "wanted"),
    [
        ("move-sku", {"feature": "h100"}, BATCH_SCRIPT, "#SBATCH --constraint=h100"),
        ("swap-placement", {"partition": "plain"}, BATCH_SCRIPT, "#SBATCH -p plain --nodes=2"),
        ("reduce-gpus", {}, BATCH_SCRIPT, "#SBATCH -p train --nodes=1"),
        ("mig-slice", {}, ONE_GPU_SCRIPT, "#SBATCH --gres=gpu:1g.10gb:1"),
        ("lower-clock", {}, BATCH_SCRIPT, "#SBATCH --gpu-freq=1455"),
        ("rest-clocks", {}, BATCH_SCRIPT, "#SBATCH --export=ALL,CUDA_DISABLE_PERF_BOOST=1"),
    ],
)
def test_a_batch_script_is_changed_and_undone(action, asked, script: str, wanted, newline, tmp_path: Path) -> None:
    text = script.replace("\n", newline).encode()
    made = patch_of(action, "slurm", ("job.sh", text.decode()), **asked)
    after = applied(text, made.patch.text, tmp_path)
    lines, before = after.decode().split(newline), text.decode().split(newline)
    assert wanted in lines and len(set(lines) ^ set(before)) <= 2
    assert applied(after, made.undo.text, tmp_path) == text
