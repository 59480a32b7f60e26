# pyright: reportOptionalMemberAccess=false
"""What a patch asks for, what it refuses, how it sizes and places work; hostile names are refused or without effect."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from skuwise.__main__ import main
from skuwise.advisor.core.advice_types import Configuration, SavingsBaseline
from skuwise.advisor.patches.build import comment, next_step
from skuwise.advisor.patches.change import Target
from skuwise.advisor.patches.kubernetes import difference
from skuwise.advisor.patches.slurm import BatchScript
from skuwise.advisor.recommend.progress import WorkloadAddress
from skuwise.advisor.state.fleets import state_files
from skuwise.rules.base.errors import SkuwiseError, UsageError
from skuwise.tests.support.ledger_builders import decide, keep, kept
from skuwise.tests.support.moves_builders import IB
from skuwise.tests.support.patch_cases import H100, ID, NOW, SERVICE, accepted, patch_of
from skuwise.tests.support.patch_samples import (
    BATCH_SCRIPT,
    CLUSTER_QUEUE,
    DEPLOYMENT,
    JOB,
    ONE_GPU_SCRIPT,
    PYTORCH_JOB,
    STATEFUL_SET,
    sized,
)

ON_PREMISES = Configuration("L40S", "bare-metal/L40S", 16)
NOT_THERE = WorkloadAddress("kubernetes", "")
NO_MANIFEST = replace(SERVICE, controller_kind=None, container=None, replicas=None)
GROUND = ("yardstick", "address", "target", "source", "before")
TWO = sized(DEPLOYMENT, 2, 8)


def make(action: str, target, values: dict) -> None:
    """Make a patch. `values`: of its ground, options, and `file`: what is patched."""
    ground = {name: value for name, value in values.items() if name in GROUND}
    options = {name: value for name, value in values.items() if name not in {"file", *ground}}
    files = [("file", values["file"])] if "file" in values else []
    patch_of(action, target, *files, entry=accepted(action, **ground), **options)


@pytest.mark.parametrize(
    ("action", "target", "values", "options"),
    [
        ("move-sku", "kubernetes", {"address": NOT_THERE}, "--kind --name --namespace"),
        ("move-sku", "kubernetes", {"address": None, "target": ON_PREMISES, "source": ON_PREMISES},
         "--kind --name --namespace --node-label"),
        ("move-sku", "kubernetes", {"target": replace(H100, gpu_sku="T4", node_sku=None), "file": TWO}, "--node-label"),
        ("move-sku", "kubernetes", {"target": Configuration("H100-SXM5", IB, 8), "address": NO_MANIFEST},
         "--kind --replicas"),
        ("move-sku", "kubernetes", {"kind": "PyTorchJob", "target": ON_PREMISES, "source": ON_PREMISES},
         "--manifest --node-label"),
        ("reduce-gpus", "kubernetes", {"address": NO_MANIFEST, "kind": "StatefulSet"}, "--replicas"),
        ("reduce-gpus", "kubernetes", {"address": replace(NO_MANIFEST, replicas=1)}, "--kind --container"),
        ("mig-slice", "kubernetes", {"address": NO_MANIFEST}, "--kind --container"),
        ("rest-clocks", "kubernetes", {"address": NOT_THERE, "name": "chat"}, "--kind --namespace --container"),
        ("consolidate", "kubernetes", {"yardstick": SavingsBaseline(nodes=("n1", "n2"))}, "--node"),
        ("move-sku", "kueue", {}, "--manifest --target-flavor"),
        ("release", "kueue", {}, "--manifest"),
        ("move-sku", "slurm", {}, "--manifest --partition"),
        ("move-sku", "slurm", {"file": BATCH_SCRIPT}, "--partition"),
        ("lower-clock", "slurm", {"before": None}, "--manifest --mhz"),
    ],
)  # fmt: skip
def test_what_is_missing_is_asked_once_with_the_command_to_run(action: str, target, values: dict, options: str) -> None:
    with pytest.raises(UsageError) as caught:
        make(action, target, values)
    command = caught.value.remedy.removeprefix("Run: skuwise patch ").partition(" ; ")[0]
    words = shlex.split(command)
    assert words[::2] == options.split() and len(words) == 2 * len(words[::2])
    assert caught.value.message.count(", ") + 1 == len(words[::2])


def test_what_the_ledger_knows_is_filled_in() -> None:
    made = patch_of("reduce-gpus", "kubernetes")
    assert yaml.safe_load(made.patch.text) == {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat", "namespace": "llm"},
        "spec": {"replicas": 1},
    }  # fmt: skip
    assert spec_of(made.undo.text) == {"replicas": 2}
    assert made.apply.startswith("kubectl patch deployment.apps chat -n llm --type strategic")


@pytest.mark.parametrize(
    ("action", "target", "values", "says"),
    [
        ("fix-first", "kubernetes", {}, "no patch"), ("power-cap", "slurm", {}, "no patch"),
        ("schedule-off", "kubernetes", {}, "no patch"), ("lower-clock", "kubernetes", {}, "for kubernetes"),
        ("consolidate", "slurm", {}, "for slurm"), ("mig-slice", "kueue", {}, "for kueue"),
        ("mig-slice", "kubernetes", {"yardstick": SavingsBaseline()}, "MIG profile"),
        ("reduce-gpus", "kubernetes", {"replicas": 3}, "not 3 replicas"),
        # Scripts of another size, or none.
        ("reduce-gpus", "slurm", {"file": ONE_GPU_SCRIPT}, "asks for 1 GPUs"),
        ("mig-slice", "slurm", {"file": BATCH_SCRIPT}, "asks for 8 GPUs"),
        ("move-sku", "slurm", {"file": "hello\n", "partition": "a"}, "not a batch script"),
        ("reduce-gpus", "slurm", {"file": "#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n"}, "several parts"),
        ("move-sku", "slurm", {"file": "#!/bin/sh\n#SBATCH -C 'a&b' -G 16\n", "feature": "c"}, "several features"),
        ("rest-clocks", "slurm", {"file": "#!/bin/sh\n#SBATCH --export=NONE\n"}, "--export='NONE'"),
        ("rest-clocks", "slurm", {"file": "#!/bin/sh\n#SBATCH --export='A=b c'\n"}, "--export='A=b c'"),
        # Manifests of another workload, or of none.
        ("reduce-gpus", "kubernetes", {"file": sized(DEPLOYMENT, 3, 8)}, "asks for 24 GPUs"),
        ("reduce-gpus", "kubernetes", {"file": sized(JOB, 1, 16).replace("  parallelism: 1\n", "").replace(
            "Job", "DaemonSet")}, "cannot become 8"),
        ("reduce-gpus", "kubernetes", {"file": TWO.replace("name: chat", "name: other")}, "for 'llm/chat'"),
        ("release", "kubernetes", {"file": TWO.replace("namespace: llm", "namespace: prod")}, "for 'llm/chat'"),
        ("release", "kubernetes", {"file": f"{TWO}---\n{TWO}"}, "not clear"),
        ("release", "kubernetes", {"file": "apiVersion: v1\nkind: Service\nmetadata: {name: chat}\n"}, "not clear"),
        ("release", "kubernetes", {"file": sized(DEPLOYMENT, 0, 8)}, "already"),
        # Queues.
        ("reduce-gpus", "kueue", {"file": TWO}, "no such ClusterQueue"),
        ("reduce-gpus", "kueue", {"file": CLUSTER_QUEUE}, "'h100-ib', 'h100'"),
        ("move-sku", "kueue", {"file": CLUSTER_QUEUE, "flavor": "h100", "target_flavor": "h100"}, "of the target"),
        ("move-sku", "kueue", {"file": CLUSTER_QUEUE, "flavor": "h100", "target_flavor": "a"}, "'h100-ib', 'h100'"),
        ("release", "kueue", {"file": CLUSTER_QUEUE, "flavor": "h100"}, "frees 16"),
    ],
)  # fmt: skip
def test_what_cannot_be_patched_is_refused(action: str, target, values: dict, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        make(action, target, values)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "manifest",
    [
        TWO + "---\n" + sized(JOB, 2, 8).replace("chat", "other"),
        "apiVersion: v1\nkind: List\nitems:\n- " + sized(JOB, 2, 8).replace("\n", "\n  "),
        sized(DEPLOYMENT, 1, 16).replace(
            "name: proxy", "name: proxy\n          resources: {limits: {nvidia.com/gpu: 0}}"
        ),
    ],
)
def test_the_object_of_the_workload_is_found_in_a_manifest(manifest: str) -> None:
    assert "chat" in patch_of("reduce-gpus", "kubernetes", ("m.yaml", manifest)).apply


def spec_of(text: str) -> dict:
    return yaml.safe_load(text)["spec"]


@pytest.mark.parametrize(
    ("typed", "key", "value"),
    [({}, "nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB"), ({"node_label": ["pool=a"]}, "pool", "a")],
)
def test_a_move_to_another_gpu_uses_the_label_of_its_product_or_the_typed_one(typed, key: str, value: str) -> None:
    entry = accepted("move-sku", target=Configuration("A100-SXM4-80GB", None, 16))
    made = patch_of("move-sku", "kubernetes", ("m.yaml", TWO), entry=entry, **typed)
    changed = spec_of(made.patch.text)["template"]["spec"]["nodeSelector"]
    assert changed == {"node.kubernetes.io/instance-type": None, key: value}


CONTAINERS = "containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 8}}}]"


def test_a_pod_is_not_bound_to_its_old_node_and_is_not_deleted() -> None:
    spec = f"spec: {{nodeName: old-node, {CONTAINERS.replace('8', '16')}}}\n"
    pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: chat, namespace: llm}}\n{spec}"
    made = patch_of("move-sku", "kubernetes", ("pod.yaml", pod))
    assert spec_of(made.patch.text)["nodeName"] is None and spec_of(made.undo.text)["nodeName"] == "old-node"
    assert "--local" in made.apply and "replace" not in made.apply


@pytest.mark.parametrize(
    ("api", "kind", "change"),
    [
        ("batch/v1", "Job", {"suspend": True}), ("ray.io/v1", "RayCluster", {"suspend": True}),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", {"suspend": True}),
        ("kubeflow.org/v2beta1", "MPIJob", {"runPolicy": {"suspend": True}}),
        ("kubeflow.org/v1", "Notebook", None), ("batch.volcano.sh/v1alpha1", "Job", None),
        ("example.org/v1", "CronJob", None),
    ],
)  # fmt: skip
def test_a_workload_is_stopped_by_a_field_that_its_kind_has(api: str, kind: str, change: dict | None) -> None:
    spec = f"spec: {{tasks: [{{template: {{spec: {{{CONTAINERS}}}}}}}]}}\n"
    manifest = f"apiVersion: {api}\nkind: {kind}\nmetadata: {{name: chat, namespace: llm}}\n{spec}"
    if change is None:
        with pytest.raises(UsageError, match="no field that stops it"):
            patch_of("release", "kubernetes", ("m.yaml", manifest))
    else:
        assert spec_of(patch_of("release", "kubernetes", ("m.yaml", manifest)).patch.text) == change


def test_a_custom_resource_keeps_what_stands_in_its_lists_and_names_its_version() -> None:
    words = '10:30, 1e3, 0o17, yes, 2026-11-25, "10:30", "1e3", "yes", 64Gi, 8, "8", null, a b'
    args = f"args: [{words}]"
    manifest = (
        "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: chat, namespace: llm, resourceVersion: '7'}\nspec:\n"
        f"  workers:\n  - replicas: 2\n    minReplicas: 2\n    template: {{spec: {{{CONTAINERS[:-2]}, {args}}}]}}}}\n"
    )
    made = patch_of("reduce-gpus", "kubernetes", ("m.yaml", manifest))
    (worker,) = spec_of(made.patch.text)["workers"]
    assert (worker["replicas"], worker["minReplicas"]) == (1, 1)
    lines = [part.strip() for part in made.patch.text.split("\n")]
    assert lines[lines.index("args:") + 1 :][:13] == [f"- {word}" for word in words.split(", ")]
    assert yaml.safe_load(made.patch.text)["metadata"]["resourceVersion"] == "7"
    assert "resourceVersion" not in yaml.safe_load(made.undo.text)["metadata"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: &x 1\nb: *x\n", "aliases"), ("a: [", "not valid YAML, line 1"), ("? [a]\n: 1\n", "not valid YAML"),
        ("[" * 2000 + "]" * 2000, "not valid YAML"), ("a: !!python/object:os.system x\n", "not valid YAML"),
        ("apiVersion: v1\n", "not valid"), ("- a\n", "not valid"), ("\ud800", "not UTF-8"),
        ("apiVersion: v1\nkind: 1\nmetadata: {}\n", "not clear"),
    ],
)  # fmt: skip
def test_what_kubectl_would_not_print_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        patch_of("release", "kubernetes", ("m.yaml", text))


def merged(base: object, patch: object) -> object:
    """RFC 7396, section 2."""
    if not isinstance(patch, dict):
        return patch
    made = dict(base) if isinstance(base, dict) else {}
    made |= {key: merged(made.get(key), value) for key, value in patch.items()}
    return {key: value for key, value in made.items() if key not in patch or patch[key] is not None}


VALUES = st.recursive(
    st.one_of(st.integers(-5, 5), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_leads_there_and_its_undo_back(before: dict, after: dict) -> None:
    assert merged(before, difference(before, after, False)) == after
    assert merged(after, difference(after, before, False)) == before


@pytest.mark.parametrize(
    ("action", "typed", "directives", "changed", "kept"),
    [
        ("reduce-gpus", {}, "--nodes=2 --gres=gpu:8", "--nodes=1 --gres=gpu:8", []),
        ("reduce-gpus", {}, "--nodes=2 --gres=gpu:8 --ntasks=16", "--nodes=1 --gres=gpu:8 --ntasks=16",
         ["--ntasks=16"]),
        ("reduce-gpus", {}, "-N2 --gres=gpu:8 --ntasks-per-node=8", "-N1 --gres=gpu:8 --ntasks-per-node=8", []),
        ("reduce-gpus", {}, "-N1 --gpus-per-node=16 --ntasks-per-node=16", "-N1 --gpus-per-node=8 --ntasks-per-node=16",
         ["--ntasks-per-node=16"]),
        ("reduce-gpus", {}, "-N2 -n 1 --gpus=16", "-N2 -n 1 --gpus=8", ["--nodes=2"]),
        ("reduce-gpus", {}, "-N2 -n 16 --gpus-per-task=1", "-N2 -n 8 --gpus-per-task=1", ["--nodes=2"]),
        ("move-sku", {"feature": "l40s"}, "-G 16 -C a100 -w n1", "-G 16 -C l40s -w n1", ["--nodelist=n1"]),
        ("swap-placement", {"partition": "c"}, "-G 16 -p a -C 'a&b'", "-G 16 -p c -C 'a&b'", ["--constraint=a&b"]),
        ("lower-clock", {}, "--gpu-freq=high,memory=high", "--gpu-freq=1455,memory=high", []),
        ("lower-clock", {}, "--gpu-freq=memory=low,900,verbose", "--gpu-freq=1455,memory=low,verbose", []),
        ("lower-clock", {"mhz": 990}, "--gpu-freq=900", "--gpu-freq=990", []),
        ("rest-clocks", {}, "--export=HOME,A=b", "--export=HOME,A=b,CUDA_DISABLE_PERF_BOOST=1", []),
    ],
)  # fmt: skip
def test_directives_are_changed_and_what_asks_for_the_old_is_noted(action, typed, directives, changed, kept) -> None:
    made = patch_of(action, "slurm", ("job.sh", f"#!/bin/bash\n#SBATCH {directives}\nsrun x\n"), **typed)
    lines = [line[1:] for line in made.patch.text.splitlines()[3:] if line.startswith("+")]
    notes = [note.removeprefix("job.sh still asks for ") for note in made.notes if note.startswith("job.sh")]
    assert (lines, [note.partition(":")[0] for note in notes]) == ([f"#SBATCH {changed}"], kept)


def script(*lines: str) -> BatchScript:
    return BatchScript("\n".join(["#!/bin/bash", *lines, ""]))


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        (["#SBATCH --partition=a", "#SBATCH -p b"], "b"), (["#SBATCH -pb"], "b"),
        (["#SBATCH --partition b # c"], "b"), (['#SBATCH --partition="b"'], "b"), (["#SBATCH --exclusive -p b"], "b"),
        (["##SBATCH -p b"], None), (["#SBATCH # -p b"], None), (["srun x", "#SBATCH -p b"], None),
        (["#SBATCHX -p b"], None), ([" #SBATCH -p b"], None), (["", "  # c", "#SBATCH -p b"], "b"),
        (["#SBATCH -p"], None), (["#SBATCH -x a -p b"], "b"),
    ],
)  # fmt: skip
def test_the_last_directive_before_the_first_command_counts(lines: list[str], value: str | None) -> None:
    assert script(*lines).value("partition") == value


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        ("--gres=gpu:h100:8 -N2", ("gres", "h100", 8, 2)), ("--gres=gpu", ("gres", None, 1, 1)),
        ("-G 4", ("gpus", None, 4, 1)), ("--gpus-per-node=a100:2 -N 3", ("gpus-per-node", "a100", 2, 3)),
        ("--gpus-per-task=1 -n 8", ("gpus-per-task", None, 1, 8)), ("--gres=nvme:1 --gpus=4", ("gpus", None, 4, 1)),
        ("--gres=gpu:1,tmp:2", None), ("--gres=gpu:2 -N 1-4", None), ("--mem=1", None), ("-G 8 --gres=gpu:8", None),
        ("--nodes=2 --gpus-per-node=8 --gpus=16", None), ("--gpus-per-socket=2", None),
        ("--gpus-per-task=1 -n 8 --gpus-per-socket=2", None),
    ],
)  # fmt: skip
def test_how_a_script_asks_for_gpus(line: str, asks: tuple | None) -> None:
    batch_script = script(f"#SBATCH {line}")
    if asks is not None:
        assert batch_script.gpus() == asks
    else:
        with pytest.raises(UsageError, match="does not ask for GPUs"):
            batch_script.gpus()


@pytest.mark.parametrize(("lent", "after"), [("12", 8), ('"12"', 8), ("8", 8), ("3", 3)])
def test_a_lending_limit_never_exceeds_the_quota(lent: str, after: int) -> None:
    manifest = CLUSTER_QUEUE.replace("nominalQuota: 32}", f"nominalQuota: 16, lendingLimit: {lent}}}")
    made = patch_of("reduce-gpus", "kueue", ("queue.yaml", manifest), flavor="h100-ib")
    there, back = (spec_of(file.text)["resourceGroups"][0]["flavors"][0] for file in (made.patch, made.undo))
    assert there["resources"][1] == {"name": "nvidia.com/gpu", "nominalQuota": 8, "lendingLimit": after}
    assert back["resources"][1]["lendingLimit"] == yaml.safe_load(lent)


EVIL = [
    "x\nkind: Secret", "$(touch /tmp/x)", "`id`", "a b", "--all", "-n", "a;b", "'", '"', "\\", "x\\\n#SBATCH --wrap=id",
    "n1 State=DOWN", "n1\nPartitionName=x", "\u202etxt", "\x1b[2J", "\u2028a", "*", "..", "a/b", "%n", "{{x}}",
    "!!python", "&a", "*a", "# c", "\0", "\r\nExecStart=/bin/id", "\ud800", "Ä", "x" * 300,
]  # fmt: skip
HOSTILE = st.one_of(st.sampled_from(EVIL), st.text(max_size=30))


@given(st.lists(HOSTILE, min_size=1))
def test_no_line_leaves_its_comment(lines: list[str]) -> None:
    text = comment(lines)
    assert all(line.startswith("#") and not line.endswith("\\") for line in text.split("\n")[:-1])
    assert len(text.splitlines()) == len(lines)
    assert yaml.safe_load(text.encode("utf-8", "backslashreplace")) is None


@given(HOSTILE.filter(bool), st.sampled_from(["move-sku", "rest-clocks"]))
def test_hostile_names_of_kubernetes_objects_are_refused(name: str, action: str) -> None:
    for field in ("kind", "name", "namespace", "container"):
        typed: dict[str, Any] = {"kind": "Deployment", "name": "chat", "namespace": "llm", "container": "server"}
        typed[field] = name
        try:
            made = patch_of(action, "kubernetes", **typed)
        except SkuwiseError as error:
            assert error.remedy
            continue
        values = yaml.safe_load(made.patch.text)
        assert values["kind"] == typed["kind"] and values["metadata"]["name"] == typed["name"]
        words = shlex.split(made.apply)
        assert words[:2] == ["kubectl", "patch"] and words[3:6] == [typed["name"], "-n", typed["namespace"]]


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize(
    ("action", "target", "option"),
    [
        ("consolidate", "kubernetes", "node"), ("move-sku", "kubernetes", "node_label"),
        ("move-sku", "slurm", "feature"), ("move-sku", "slurm", "partition"), ("mig-slice", "slurm", "mig"),
        ("mig-slice", "kubernetes", "mig"),
    ],
)  # fmt: skip
def test_what_else_is_typed_or_in_the_ledger_is_refused(action: str, target: Target, option: str, evil: str) -> None:
    entry = accepted(action, yardstick=SavingsBaseline(mig_profile=evil)) if option == "mig" else accepted(action)
    typed = {} if option == "mig" else {option: (evil,) if option.startswith("node") else evil}
    files = [("job.sh", ONE_GPU_SCRIPT)] if target == "slurm" else []
    with pytest.raises(UsageError, match="not a valid"):
        patch_of(action, target, *files, entry=entry, **typed)


def parts_of(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values inside of a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inside:
        yield (*at, key)
        yield from parts_of(child, (*at, key))


MALFORMED: tuple[tuple[str, Target, str], ...] = (
    *((action, "kubernetes", sized(text, 2, 8))
      for text in (DEPLOYMENT, STATEFUL_SET, JOB, PYTORCH_JOB)
      for action in ("move-sku", "reduce-gpus", "rest-clocks", "release")),
    *((action, "kueue", CLUSTER_QUEUE) for action in ("move-sku", "reduce-gpus")),
)  # fmt: skip
JUNK: tuple[Any, ...] = (["x"], "x", "", 5, -1, True, 1.5, {"a": 1}, None, [], {}, [None], [[1]], [{}], "9" * 30)


@given(st.data())
def test_manifests_with_a_value_of_another_form_are_patched_or_refused(data: st.DataObject) -> None:
    action, target, text = data.draw(st.sampled_from(MALFORMED))
    value = yaml.safe_load(text)
    *where, last = data.draw(st.sampled_from(list(parts_of(value))))
    holder = value
    for key in where:
        holder = holder[key]
    holder[last] = data.draw(st.sampled_from(JUNK))
    try:
        made = patch_of(action, target, ("m.yaml", json.dumps(value)), flavor="h100-ib", target_flavor="h100")
        assert yaml.safe_load(made.patch.text)["kind"] and made.apply
    except SkuwiseError as error:
        assert error.remedy


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "chat.yaml").write_text(TWO)
    return tmp_path


def patch(place: Path, *words: str) -> int:
    return main(["patch", ID[:6], "--state", str(place / "state.db"), *words])


def test_a_patch_is_printed_and_written_once(place: Path, capsys) -> None:
    keep(place / "state.db", accepted("move-sku"))
    given = ["--for", "kubernetes", "--manifest", str(place / "chat.yaml")]
    assert patch(place, *given) == 0
    printed = capsys.readouterr().out
    assert f"ledger show {ID}" in printed and "by ann" in printed and "What was measured." in printed
    assert patch(place, *given, "--output", str(place / "out")) == 0
    written = {path.name: path.read_text() for path in (place / "out").iterdir()}
    assert set(written) == {"patch-deployment-chat.yaml", "undo-deployment-chat.yaml"}
    assert written["patch-deployment-chat.yaml"] == printed
    assert "nothing was applied" in capsys.readouterr().err
    assert patch(place, *given, "--output", str(place / "out")) == 2
    assert "File exists" in capsys.readouterr().err
    assert patch(place, *given, "--undo") == 0
    assert capsys.readouterr().out == written["undo-deployment-chat.yaml"]


@pytest.mark.parametrize(
    ("act", "words", "status", "says"),
    [
        ("proposed", [], 2, "ledger accept"), ("dismissed", [], 2, "is dismissed, not accepted"),
        ("done", [], 2, "--undo"), ("done", ["--undo"], 0, ""), ("regressed", [], 2, "ledger accept"),
        ("blocked", [], 2, "it is blocked"), ("accepted", ["--manifest", "none"], 2, "Cannot read none"),
    ],
)  # fmt: skip
def test_only_what_was_accepted_is_patched(act, words, status: int, says: str, place: Path, capsys) -> None:
    entry = replace(accepted("move-sku"), **({"snapshot": None} if act == "blocked" else {}))
    keep(place / "state.db", entry if act != "proposed" else replace(entry, events=entry.events[:1]))
    # Long after it was last proposed nothing that was decided on expires.
    if act in ("dismissed", "done", "regressed"):
        decide(place / "state.db", ID, act, NOW + 60, by="skuwise", why="told")
    done = patch(place, "--for", "kubernetes", "--manifest", str(place / "chat.yaml"), *words)
    output = capsys.readouterr()
    assert done == status and says in output.err and bool(output.out) is (status == 0)
    assert output.err.count("\n") == (status != 0)


SLURM = WorkloadAddress("slurm", "train")


@pytest.mark.parametrize(
    ("action", "address", "says"),
    [
        ("move-sku", SERVICE, f"Next: skuwise patch {ID} --for kubernetes --db f.db"),
        ("rest-clocks", SLURM, f"Next: skuwise patch {ID} --for slurm --db f.db"),
        ("consolidate", None, f"Next: skuwise patch {ID} --for kubernetes --db f.db; on Slurm: scontrol update "
         f"NodeName=n2 State=DRAIN Reason={ID}"),
        ("lower-clock", SERVICE, "Next, by hand (no patch for it): What was\\x1b measured."),
        ("release", SLURM, "Next, by hand (no patch for it): What was\\x1b measured."),
        ("fix-first", WorkloadAddress("docker", "a"), "Next, by hand (no patch for it): What was\\x1b measured."),
    ],
)  # fmt: skip
def test_the_next_step_of_what_was_accepted(action: str, address: WorkloadAddress | None, says: str) -> None:
    entry = accepted(action, text="What was\x1b\nmeasured.", address=address)
    assert next_step(entry, "skuwise", "--db f.db") == says


def test_what_accept_prints_leads_to_the_patch_of_the_fleet(founding, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    keep(tmp_path / "skuwise/other.db", accepted("move-sku", about="app-32"))
    assert main(["advise", "--db", str(founding), "--format", "csv", "--until", "2026-11-16T00:00:00Z"]) == 0
    assert main(["ledger", "list", "--db", str(founding)]) == 0
    listed = capsys.readouterr().out
    assert ID not in listed  # the ledger of another fleet lies beside it
    id_ = next(line.split()[0] for line in listed.splitlines() if " move-sku " in line)
    assert main(["ledger", "accept", id_, "--db", str(founding)]) == 0
    step = capsys.readouterr().err.splitlines()[-1].removeprefix("Next: ")
    words = shlex.split(step)
    assert words[-6:] == ["patch", id_, "--for", "kubernetes", "--db", str(founding)]
    assert main(words[words.index("patch") :]) == 2
    remedy = capsys.readouterr().err.partition("Run: ")[2].partition(" ; ")[0]
    words = shlex.split(remedy.replace("KIND", "Deployment"))
    assert words[-2:] == ["--kind", "Deployment"]
    assert main(words[words.index("patch") :]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["metadata"]["name"]
    (entry,) = [kept(path)[id_] for path in state_files(tmp_path / "skuwise") if id_ in kept(path)]
    assert (entry.snapshot.address.namespace, entry.snapshot.address.replicas) == ("nlp", 4)
