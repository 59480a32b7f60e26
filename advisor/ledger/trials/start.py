"""Whether a trial can come to a verdict, by what the ledger keeps of the telemetry: asked before it begins."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.coded_text import CodedText, coded
from ...moves.tracking.observation import PredictionSnapshot
from .outcome import ENGINE_REMEDY, names_of, short_name, why_not
from .ratio import BASES, BUSY_MAX


@dataclass(frozen=True, slots=True)
class TrialOutlook:
    """`refused`: why it cannot come to a verdict, and `remedy`; None: it can. `basis`: what it will rest on (a key of
    `ratio.BASES`). `warnings`: what may keep it from a verdict."""

    refused: CodedText | None = None
    remedy: str = ""
    basis: str | None = None
    warnings: tuple[CodedText, ...] = ()


def outlook(ground: PredictionSnapshot, replica: str | None) -> TrialOutlook:
    """What a trial of one replica can be expected to rest on. `replica`: its name or id; None: any on the target."""
    return _of_a_service(ground, replica) if ground.serving else _of_a_job(ground)


def _of_a_job(ground: PredictionSnapshot) -> TrialOutlook:
    """A job does the same work again on the target: its steps are compared, one run after the other."""
    if ground.before is None or not ground.before.period_seconds:
        return TrialOutlook(
            coded("trial-job-without-steps", "It is a job, and no steps are detected in its load to compare."),
            "Accept it, and compare the duration of whole runs.",
        )
    here, there = ground.source.gpu_count, ground.target.gpu_count
    if here != there and not _is_instance(ground):
        return TrialOutlook(
            coded("trial-job-gpus-differ", "It is a job on {here} GPUs, {there} on the target: its steps would not be "
                  "of the same work.", here=here, there=there),
            "Accept it, and compare the duration of whole runs.",
        )  # fmt: skip
    note = coded("trial-of-a-job", "It is a job: run it once on the target, for 24 h or more. Its steps are compared "
                 "with those of the runs on the source.")  # fmt: skip
    return TrialOutlook(basis="step-length", warnings=(note,))


def _of_a_service(ground: PredictionSnapshot, replica: str | None) -> TrialOutlook:
    if len(ground.replicas) == 1:
        return TrialOutlook(
            coded("trial-single-replica", "It has a single replica ({name}), and a trial compares one with the rest.",
                  name=short_name(ground.replicas[0])),
            "Start a second replica on the target, run 'skuwise advise' and try again; or accept it.",
        )  # fmt: skip
    warnings: list[CodedText] = []
    if not ground.replicas:
        warnings.append(coded("trial-replicas-unknown", "The number of replicas is unknown: it needs two or more."))
    elif replica is not None and replica not in (*ground.replicas, *ground.nodes):
        warnings.append(
            coded("trial-name-not-seen", "No replica is named {replica} in the last telemetry (names: {names}). The "
                  "trial waits for a replica of this name on the target.",
                  replica=short_name(replica), names=names_of(ground.replicas))
        )  # fmt: skip
    basis = _basis(ground)
    if basis is None:
        return TrialOutlook(why_not(_why_none(ground)), ENGINE_REMEDY)
    if basis == "energy-per-busy-second":
        warnings.append(
            coded("trial-by-energy", "Neither tokens nor requests are counted: the time is inferred from the energy "
                  "that engines use and the requests in flight, with a wide interval.")
        )  # fmt: skip
    return TrialOutlook(basis=basis, warnings=tuple(warnings))


def _basis(ground: PredictionSnapshot) -> str | None:
    """What a service's trial will rest on; None: on nothing."""
    before = ground.before
    if before is None:
        return None
    counted = "tokens" if before.busy_seconds_per_token is not None else "requests" if ground.requests else None
    if counted is not None and ground.queue:
        return f"{counted}-at-equal-concurrency"
    busy = None if _is_instance(ground) else before.busy
    if counted is not None and busy is not None and busy <= BUSY_MAX:
        return f"{counted}-per-busy-second"
    same = ground.source.gpu_sku is not None and ground.source.gpu_sku == ground.target.gpu_sku
    power = before.rest_watts is not None and before.watts is not None
    return "energy-per-busy-second" if ground.queue and same and power and busy is not None else None


def _why_none(ground: PredictionSnapshot) -> str:
    before = ground.before
    counted = ground.requests or (before is not None and before.busy_seconds_per_token is not None)
    if not counted:
        level = ground.queue or (before is not None and before.busy is not None)
        return "trial-split-unknown" if level else "trial-nothing-told"
    return "trial-load-unknown" if _is_instance(ground) or before is None or before.busy is None else "trial-saturated"


def _is_instance(ground: PredictionSnapshot) -> bool:
    """Whether the replica on the target holds MIG instances, which do not tell how busy their engines are."""
    return ground.yardstick.mig_profile is not None


def basis_words(basis: str) -> str:
    """What a trial rests on, in a sentence."""
    return f"The comparison rests on {BASES[basis]}."
