"""Kinds: the model and its shapes, what names, owners and engines say, and what bad or thin data do to a verdict."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.classify.kinds.clues import Clue, metadata_clues
from skuwise.advisor.classify.kinds.kinds import judge_kind, settled_by
from skuwise.advisor.classify.kinds.shapes import PROBE, SHAPES, fingerprint, levels, with_derived
from skuwise.advisor.classify.workloads.session import EngineFacts, Session
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.verdict_types import Scheduled, WorkloadVerdict
from skuwise.benchmarks.fit import train_kinds as trainer
from skuwise.benchmarks.fit.real_series import read_rows
from skuwise.rules.models import Calibration, KindModel
from skuwise.rules.policy.labels import WORKING_KINDS
from skuwise.rules.policy.thresholds import load_levels
from skuwise.tests.support.frame_builder import DECODE, FREE, GIB, TRAINING, alone, at_work
from skuwise.tests.support.rulebooks import rulebook

BY_NAME = {shape.name: shape for shape in SHAPES}


def test_the_model_that_ships_is_for_these_shapes_and_comes_of_what_is_declared() -> None:
    model = rulebook().kind_model
    assert tuple(model.intercepts) == WORKING_KINDS and set(model.weights) == set(BY_NAME)
    assert model.inputs == trainer.inputs(read_rows()) and "scikit-learn" in model.trained["libraries"]
    for shape, kind in itertools.product(SHAPES, WORKING_KINDS):
        low, high = shape.bounds(kind, 3.0)
        assert low <= model.weights[shape.name][kind] <= high, (shape.name, kind)


def test_second_fine_shapes_are_silent_where_samples_are_coarse() -> None:
    fine = levels({**PROBE, "period_share": 1.0, "sm_active_cv": 0.6})
    coarse = levels({**PROBE, "period_share": 1.0, "sm_active_cv": 0.6, "resolution_seconds": 60.0})
    second_fine = ("periodic", "pauses", "links-against-compute")
    assert all(fine[name] > 0 for name in second_fine) and all(coarse[name] == 0 for name in second_fine)


@given(st.dictionaries(st.sampled_from(sorted(PROBE)), st.floats(-1e6, 1e6) | st.just(float("nan"))))
def test_no_features_make_a_level_that_is_no_share_or_a_sentence_without_its_number(features: dict) -> None:
    for name, level in levels(features).items():
        assert 0.0 <= level <= 1.0
        if level > 0:
            assert "{" not in BY_NAME[name].told(with_derived(features)).text


NAMED = (Clue({"training": 3.0}, CodedText("owner-kind", "Its owner trains.", {})),)
# Of one GPU for a week, all known of it.
WHOLE: Mapping[str, float] = {
    "resolution_seconds": 1.0, "elapsed_hours": 168.0, "hours": 168.0, "gpus": 1.0, "nodes": 1.0, "mem_level": 0.5,
    "mem_hourly_cv": 0.02, "tensor_utilization": 0.2, "hbm_utilization": 0.2,
}  # fmt: skip


def model(**weights: float) -> KindModel:
    """A model in which the named shapes (underscores for dashes) say so much for training, and all others nothing."""
    said = {name.replace("_", "-"): value for name, value in weights.items()}
    table = {
        shape.name: {label: said.get(shape.name, 0.0) if label == "training" else 0.0 for label in WORKING_KINDS}
        for shape in SHAPES
    }
    return KindModel(dict.fromkeys(WORKING_KINDS, 0.0), table, Calibration(1.0, 0.0), fingerprint(SHAPES), "x", {})


def settling(features: Mapping[str, float], answer: KindModel, named: Sequence[Clue] = NAMED) -> list[CodedText]:
    return list(settled_by("training", "batch-inference", features, named, answer))


def without(*names: str) -> dict[str, float]:
    return {name: value for name, value in WHOLE.items() if name not in names}


@pytest.mark.parametrize(
    ("features", "weights", "code", "series"),
    [
        ({**WHOLE, "resolution_seconds": 60.0}, {"periodic": 2.0}, "settled-by-seconds", "one second apart"),
        (without("tensor_utilization"), {"compute_bound": 2.0}, "settled-by-pipes", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
        (without("hbm_utilization"), {"thin_seconds": 2.0}, "settled-by-pipes", "DCGM_FI_PROF_DRAM_ACTIVE"),
        ({**WHOLE, "gpus": 4.0}, {"collectives": 2.0}, "settled-by-nvlink", "DCGM_FI_PROF_NVLINK_TX_BYTES"),
        ({**WHOLE, "nodes": 2.0}, {"fabric_busy": 2.0}, "settled-by-fabric", "node_infiniband_port_data"),
        ({**WHOLE, "elapsed_hours": 6.0}, {"rests_at_night": 2.0}, "settled-by-a-day", "one full day"),
        ({**WHOLE, "elapsed_hours": 48.0}, {"working_hours": 2.0}, "settled-by-days", "three days of data"),
    ],
)  # fmt: skip
def test_what_is_missing_and_would_tell_is_named_with_its_odds(features, weights, code: str, series: str) -> None:
    (reason,) = settling(features, model(**weights))
    assert reason.code == code and series in reason.text
    assert reason.fields["odds"] == pytest.approx(math.exp(2.0))
    assert "between training and batch-inference (by up to 7 to 1)" in reason.text


def test_what_cannot_exist_is_not_asked_for() -> None:
    telling = model(collectives=2.0, fabric_busy=2.0, working_hours=2.0, rests_at_night=2.0)
    for hours in (3.0, 48.0):  # it ended: no further day comes
        assert settling({**WHOLE, "elapsed_hours": hours, "ended": 1.0}, telling) == []
    assert settling(WHOLE, telling) == []  # one GPU of one node


def test_whoever_runs_it_is_asked_for_where_no_name_says_anything() -> None:
    for named in ((), (Clue({}, CodedText("command-unknown", "Its command says nothing.", {})),)):
        (owner,) = settling(WHOLE, model(), named)
        assert owner.code == "settled-by-owner" and "kube-state-metrics" in owner.text
        assert owner.fields["odds"] == pytest.approx(math.exp(2.0))


def test_an_abstention_says_what_would_settle_it_and_a_verdict_does_not() -> None:
    features = {**without("tensor_utilization", "hbm_utilization"), "engine_active": 0.5, "resolution_seconds": 60.0}
    unsure = judge_kind((), features, load_levels("kinds.yaml"), model(periodic=2.0, compute_bound=1.5))
    assert unsure.label == "unknown"
    settling = [reason.code for reason in unsure.evidence if reason.code.startswith("settled-by")]
    assert settling == ["settled-by-owner", "settled-by-seconds"]
    strong = (Clue({"training": 6.0}, CodedText("owner-kind", "Its owner trains.", {})),)
    sure = judge_kind(strong, features, load_levels("kinds.yaml"), model(periodic=2.0))
    assert sure.label == "training" and not [reason for reason in sure.evidence if reason.code.startswith("settled-by")]


BUSY = EngineFacts(("vllm",), 20.0, 400.0, 120.0, 3.0, 0.5, 0.42, has_counted=True)
PRIORS = rulebook().kind_priors


def session(name: str = "acme", **answer: object) -> Session:
    """A workload of which nothing is said but this; fields of `Scheduled` go there."""
    holding = {entry: answer.pop(entry) for entry in list(answer) if entry in Scheduled.__dataclass_fields__}
    base = Session(
        "w", "s", name, "kubernetes", None, None, None, None, None, None, (("n", "g"),), ("n",), 0.0, 1.0, 0.0, 1.0,
        "allocation", False, 1.0, 48.0, scheduled=Scheduled(**holding),  # type: ignore[arg-type]
    )  # fmt: skip
    return replace(base, **answer)  # type: ignore[arg-type]


def clues(entry: Session, features: Mapping[str, float] = {}, engine: EngineFacts | None = None) -> list[Clue]:
    return list(metadata_clues(entry, features, engine, PRIORS))


def score(result: list[Clue], kind: str) -> float:
    return sum(clue.weights.get(kind, 0.0) for clue in result)


def lead(result: list[Clue], kind: str, other: str) -> float:
    return score(result, kind) - score(result, other)


@pytest.mark.parametrize(
    ("kind", "label", "other"),
    [
        *((kind, "online-inference", "interactive") for kind in (
            "Deployment", "Rollout", "LeaderWorkerSet", "InferenceService", "RayService", "Revision", "NIMService",
            "SeldonDeployment", "DynamoGraphDeployment",
        )),
        *((kind, "training", "online-inference") for kind in (
            "PyTorchJob", "TrainJob", "MPIJob", "JobSet", "Job", "RayJob",
        )),
        ("Notebook", "interactive", "online-inference"),
        ("Workspace", "interactive", "online-inference"),
        ("CronJob", "batch-inference", "interactive"),
        ("SparkApplication", "batch-inference", "interactive"),
    ],
)  # fmt: skip
def test_what_owns_the_pods_says_what_they_are_for(kind: str, label: str, other: str) -> None:
    assert lead(clues(session(controller_kind=kind)), label, other) >= 1.5


@pytest.mark.parametrize("kind", ["RayCluster", "DaemonSet", "<b>\x1b[31m", "../Deployment"])
def test_what_runs_anything_says_nothing(kind: str) -> None:
    assert clues(session(controller_kind=kind)) == []


@pytest.mark.parametrize(
    "entry",
    [
        session(controller_kind="Deployment", image="quay.io/jupyter/pytorch-notebook:1"),
        session("jupyter-ann", controller_kind="StatefulSet"),
        session("jupyter-ann", controller_kind="Pod"),
        session(controller_kind="StatefulSet", image="acme/kubeflow-notebook-pytorch"),
        session("sys/dashboard/sys/jupyter", scheduler="slurm", partition="gpu"),
        session("interactive", scheduler="slurm", partition="debug"),
        session("bash", scheduler="slurm", partition="batch"),
    ],
)
def test_what_people_sit_in_front_of_is_interactive(entry: Session) -> None:
    result = clues(entry)
    assert all(lead(result, "interactive", kind) >= 1.2 for kind in ("online-inference", "training", "batch-inference"))


def test_partitions_qos_and_namespaces_speak_a_little() -> None:
    serves = clues(session("acme", scheduler="slurm", partition="inference-a100"))
    assert lead(serves, "online-inference", "interactive") >= 1
    assert score(clues(session("acme", scheduler="slurm", qos="scavenger")), "online-inference") < 0
    assert score(clues(session(namespace="jupyterhub")), "interactive") == 1.0


def test_framework_image_and_name_tell_of_one_program_once() -> None:
    every = session("vllm-chat", framework="vllm", image="vllm/vllm-openai:v1", command="vllm x")
    assert [clue.reason.code for clue in clues(every)] == ["framework"]
    assert [clue.reason.code for clue in clues(replace(every, framework=None))] == ["image"]


def test_images_with_hostile_names_say_nothing_harmful() -> None:
    hostile = "\x1b]0;vllm\x07\u202e<script>{x}/vllm"
    (clue,) = clues(session(image=hostile))
    assert clue.reason.code == "image" and clue.reason.text.isprintable() and "\x1b" not in str(clue.reason.fields)
    assert clues(session(image="acme/app:vllm-openai")) == [] and clues(session(image="/" * 5000 + "@" * 5000)) == []


def test_a_server_that_counted_requests_serves_whoever_owns_it() -> None:
    result = clues(session(controller_kind="Job"), {}, BUSY)
    assert result[0].reason.code == "engine-serves"
    assert all(lead(result, "online-inference", kind) >= 1.5 for kind in ("training", "batch-inference", "interactive"))
    assert "120.0 tokens/s generated" in result[0].reason.text and "0.5 waiting" in result[0].reason.text
    assert "KV cache 42 % full" in result[0].reason.text


STEPS = {"period_share": 0.8, "nvlink_utilization": 0.3, "nodes": 4.0, "fabric_utilization": 0.2}


@pytest.mark.parametrize(
    ("owner", "features", "code"),
    [
        ("PyTorchJob", {}, "engine-within-training"),
        ("RayCluster", STEPS, "engine-within-training"),
        (None, STEPS, "engine-within-training"),
        (None, {"period_share": 0.8}, "engine-serves"),
        (None, {"period_share": 0.8, "fabric_utilization": 0.2}, "engine-serves"),
        ("Deployment", STEPS, "engine-serves"),
        ("InferenceService", STEPS, "engine-serves"),
    ],
)
def test_an_engine_inside_a_trainer_decides_nothing(owner: str | None, features: dict[str, float], code: str) -> None:
    result = clues(session(controller_kind=owner), features, BUSY)
    assert result[0].reason.code == code and any(result[0].weights.values()) == (code == "engine-serves")


def test_light_serving_with_an_engines_series_is_serving_though_it_rests() -> None:
    rest = {**DECODE, "gpu_util": 0.01, "sm_active": 0.01, "dram_active": 0.01, "tensor_active": 0.0, "duty": 0.01,
            "power_watts": 110.0, "mem_used_bytes": 73.6 * GIB}  # fmt: skip
    b = at_work(rest, hours=60, gpus=8, work={"controller_kind": "Job"})
    assert b.judged().workloads[0].kind.label == "idle"
    serving = pd.DataFrame([{
        "node": "n1", "workload_id": "w", "engine": "vllm", "kv_percent": 40.0, "samples": 10.0, "preemptions": 0.0,
        "seconds": 3600.0, "generated_tokens": 7200.0, "running_max": 2.0,
    }])  # fmt: skip
    workload_verdict = judge(replace(b.frame(), serving=serving), rulebook()).workloads[0]
    assert workload_verdict.kind.label == "online-inference" and workload_verdict.kind.confidence >= 0.8


_PROFILED = ("sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp64_active", "fp32_active")
_LINKS = ("nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second")
_FAST = ("duty", "period_seconds", "period_strength", "sm_active_cv")


def _confident(verdict: WorkloadVerdict, label: str) -> float:
    """Confidence in a label, whether it was given or is an alternative."""
    return max(
        (kind.confidence for kind in (verdict.kind, *verdict.kind.alternatives) if kind.label == label), default=0.0
    )


@pytest.mark.parametrize("lost", [("sm_active", "sm_occupancy"), _LINKS, (*_PROFILED, *_LINKS, *_FAST)])
@pytest.mark.parametrize(("values", "label"), [(TRAINING, "training"), (DECODE, "online-inference")])
def test_missing_metrics_never_make_another_kind(values, label: str, lost: tuple[str, ...]) -> None:
    verdict = alone({name: value for name, value in values.items() if name not in lost}, gpus=2, hours=72)
    # By use, memory and power alone, two GPUs that work all the time are a training more often than not.
    assert verdict.kind.label in (label, "unknown") or (lost[0] in _PROFILED and verdict.kind.confidence < 0.7)
    assert _confident(verdict, label) > 0.1


def test_nothing_measured_and_nothing_said_is_unknown() -> None:
    verdict = alone({"mem_used_bytes": 40 * GIB}, gpus=1)
    assert (verdict.kind.label, verdict.kind.confidence) == ("unknown", 0.0)
    assert verdict.kind.evidence[0].code == "activity-not-measured"


@pytest.mark.parametrize(
    ("share", "engine", "idle"),
    [(0.0, 0.006, True), (0.2, 0.006, True), (0.3, 0.006, False), (0.6, 0.006, False), (1.0, 0.006, False),
     (1.0, 0.004, True)],  # a replica on standby that answers probes
)  # fmt: skip
def test_light_use_in_many_hours_is_not_idle(share: float, engine: float, idle: bool) -> None:
    """A mean and a percentile of an hour hide a moment's work; that it comes in many hours shows that it is used."""
    features = {
        "engine_active": engine, "hbm_utilization": 0.002, "idle_share": 0.99, "active_share": share, "hours": 72.0,
        "elapsed_hours": 72.0, "gpus": 1.0, "nodes": 1.0, "resolution_seconds": 60.0, "mem_level": 0.5,
    }  # fmt: skip
    book = rulebook()
    verdict = judge_kind((), features, book.kinds, book.kind_model)
    assert (verdict.label == "idle") is idle
    if not idle:
        assert all(other.label != "idle" for other in verdict.alternatives)


def test_what_stood_idle_is_idle_whatever_its_name_and_the_name_is_kept() -> None:
    held = {**FREE, "mem_used_bytes": 73.6 * GIB, "power_watts": 110.0, "duty": 0.0}
    verdict = alone(held, gpus=1, work={"framework": "vllm", "command": "vllm serve m"})
    assert verdict.kind.label == "idle" and verdict.kind.evidence[0].code == "stood-idle-and-held"
    assert any("serving engine" in sentence.text for sentence in verdict.kind.evidence) or verdict.kind.alternatives


@pytest.mark.parametrize(
    ("command", "label"),
    [
        ("torchrun --nproc-per-node=8 pretrain.py", "training"),
        ("accelerate launch lora_finetune.py", "fine-tuning"),
        ("python3 -m sglang.launch_server", "online-inference"),
        ("python3 -m vllm.entrypoints.openai.run_batch -i in.jsonl", "batch-inference"),
        ("python embed_offline.py", "batch-inference"),
        ("jupyter-lab --no-browser", "interactive"),
    ],
)
def test_a_name_decides_where_the_shape_says_little(command: str, label: str) -> None:
    plain = {"gpu_util": 0.6, "power_watts": 300.0}
    said, unsaid = (alone(plain, hours=5, gpus=1, work={"command": c}) for c in (command, "python main.py"))
    assert _confident(said, label) > _confident(unsaid, label) and said.kind.label in (label, "unknown")
