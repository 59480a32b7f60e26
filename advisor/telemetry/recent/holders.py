"""What kind of holder a workload is: a job, a notebook, a service, or a process of which no more is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....rules.policy.kind_priors import KindPriors
from ...core.recent import HolderKind

_HOLDER: Mapping[str, HolderKind] = {
    "interactive": "notebook", "online-inference": "service", "training": "job", "fine-tuning": "job",
    "batch-inference": "job",
}  # fmt: skip
_KINDS: tuple[HolderKind, ...] = ("job", "notebook", "service")
# What names say must weigh so much more for one kind of holder than for the next (natural logarithm; twice as likely).
_LEAD_MIN = 0.7
# Kubernetes kinds that end by themselves, and those that do not.
_JOB_KINDS = frozenset({
    "job", "cronjob", "jobset", "pytorchjob", "mpijob", "tfjob", "xgboostjob", "paddlejob", "trainjob", "rayjob",
    "volcanojob", "vcjob", "workflow", "taskrun",
})  # fmt: skip
_SERVICE_KINDS = frozenset({
    "deployment", "replicaset", "statefulset", "inferenceservice", "leaderworkerset", "daemonset", "rayservice",
    "seldondeployment", "revision", "rollout",
})  # fmt: skip
_NOTEBOOK_KINDS = frozenset({"notebook", "jupyternotebook"})


@dataclass(frozen=True, slots=True)
class HolderFacts:
    """What is known of a workload beside what its GPUs do; None: not told. `owner_kind`: the kind of the Kubernetes
    object that made its pods. `engine`: an inference engine's own metrics are read for it."""

    scheduler: str = "process"
    name: str = ""
    command: str | None = None
    framework: str | None = None
    image: str | None = None
    owner_kind: str | None = None
    partition: str | None = None
    namespace: str | None = None
    pod: str | None = None
    engine: bool = False


def holder_of(facts: HolderFacts, priors: KindPriors) -> HolderKind:
    """The kind of holder: by its engine, by the kind of its owner, by what names and images say, by its scheduler."""
    owner = (facts.owner_kind or "").lower()
    if owner in _NOTEBOOK_KINDS:
        return "notebook"
    if owner in _JOB_KINDS:
        return "job"
    named = _named(facts, priors)
    if named == "notebook":
        return "notebook"
    if facts.engine and named != "job":
        return "service"
    if owner in _SERVICE_KINDS:
        return "service"
    if named is not None:
        # Slurm's jobs end at their time limit, whatever they serve.
        return "job" if facts.scheduler == "slurm" and named == "service" else named
    return "job" if facts.scheduler == "slurm" else "process"


def _named(facts: HolderFacts, priors: KindPriors) -> HolderKind | None:
    """What names, images and commands say together; None: nothing, or not clearly."""
    program = " ".join(part for part in (facts.command, facts.name) if part)
    about = {
        "framework": facts.framework, "image": facts.image, "program": program, "task": program,
        "partition": facts.partition, "namespace": facts.namespace,
        "job-name": facts.name if facts.scheduler == "slurm" else None,
    }  # fmt: skip
    weights: dict[HolderKind, float] = {}
    spoken = False
    for of, text in about.items():
        line = priors.first(of, text, 0.0)
        if line is None:
            continue
        best: dict[HolderKind, float] = {}
        for kind, value in line[0].log_odds.items():
            holder = _HOLDER[kind]
            best[holder] = max(value, best.get(holder, value))
        spoken = True
        for holder, value in best.items():
            weights[holder] = weights.get(holder, 0.0) + value
    if not spoken:
        return None
    ranked: list[tuple[float, HolderKind]] = [(weights.get(one, 0.0), one) for one in _KINDS]
    ranked.sort(reverse=True)
    lead = ranked[0][0] - ranked[1][0]
    return ranked[0][1] if ranked[0][0] > 0 and lead >= _LEAD_MIN else None
