"""What engines, people and schedulers say about a workload, as clues to its kind, weighted by rules/kind_priors.yaml.
Framework, image and command name the same program, so the first of them that is sure speaks alone."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ....rules.base.sanitize import clean
from ....rules.policy.kind_priors import KindPriors
from ....rules.policy.thresholds import gaps
from ...core.coded_text import CodedText, coded
from ..features.features import Features
from ..workloads.session import EngineFacts, Session


@dataclass(frozen=True, slots=True)
class Clue:
    """`weights` by kind (log-odds, 0 where a kind is not named), and why."""

    weights: Mapping[str, float]
    reason: CodedText


# Deployments name their pods NAME-<replica set>-<five letters>; a prior only.
_DEPLOYMENT_POD = re.compile(r"-[a-f0-9]{8,10}-[a-z0-9]{5}$")
DEPLOYMENT_LIKE = "deployment-like"
# Clues to the same program, the surest first. A line of this weight needs no other beside it.
_PROGRAM = ("framework", "image", "program")
_SURE = 1.0
_REST = ("task", "job-name", "scheduler", "owner", "partition", "qos", "namespace", "part")


def metadata_clues(
    session: Session, features: Features, engine: EngineFacts | None, priors: KindPriors
) -> Iterator[Clue]:
    """Clues from engines' series, framework, image, command, name, owner, partition and request; nothing where they say
    nothing. `engine`: what the inference engines within the workload reported; None: there is none."""
    if engine is not None:
        yield engine_clue(session, features, engine, priors)
    texts, hours = _texts(session), features.get("chain_hours", session.chain_hours)
    for of in _PROGRAM:
        clue = _clue(of, texts, hours, priors)
        if clue is not None:
            yield clue
            if max(clue.weights.values()) >= _SURE:
                break
    for of in _REST:
        clue = _clue(of, texts, hours, priors)
        if clue is not None:
            yield clue


def image_name(image: str | None) -> str:
    """An image without its tag and digest: these may say anything."""
    name = (image or "").split("@", maxsplit=1)[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.split(':', maxsplit=1)[0]}"


def _texts(session: Session) -> dict[str, str | None]:
    scheduled = session.scheduled
    is_slurm = session.scheduler == "slurm"
    owner = scheduled.controller_kind
    if owner is None and not is_slurm and session.pod and _DEPLOYMENT_POD.search(session.pod):
        owner = DEPLOYMENT_LIKE
    command = " ".join(text for text in (session.command, session.name) if text)
    is_cut = any(uuid.startswith("MIG-") or "/gi" in uuid for _, uuid in session.gpus)
    part = "mig-instance" if is_cut else "shared-gpu" if session.shared else None
    return {
        "framework": session.framework, "image": image_name(scheduled.image), "program": command, "task": command,
        "job-name": session.name if is_slurm else None, "scheduler": session.scheduler,
        "owner": None if is_slurm else owner, "partition": scheduled.partition, "qos": scheduled.qos,
        "namespace": session.namespace, "part": part,
    }  # fmt: skip


def _clue(of: str, texts: dict[str, str | None], hours: float, priors: KindPriors) -> Clue | None:
    match = priors.first(of, texts[of], hours)
    if match is None or not any(match[0].log_odds.values()):
        return None
    line, word = match
    text, what = clean(texts[of] or "")[-80:], clean(line.says)
    code, sentence = _SENTENCES[text if text == DEPLOYMENT_LIKE else of]
    name = text.capitalize() if of == "scheduler" else text
    values = {"what": what, "word": clean(word)[:80], "held": _HELD.get(text)}
    return Clue({**line.log_odds}, coded(code, sentence, **{gap: values.get(gap, name) for gap in gaps(sentence)}))


# Of each clue its code and sentence.
_SENTENCES = {
    "framework": ("framework", "Framework {name}, {what}."),
    "image": ("image", "Image {image}: made for {what}."),
    "program": ("command-names", "Command names {what}."),
    "task": ("command-says", "Command or name contains “{word}”: {what}."),
    "job-name": ("job-is-called", "Job name “{name}”: {what}."),
    "scheduler": ("started-by", "Started by {name}, {what}."),
    DEPLOYMENT_LIKE: ("pod-of-a-deployment", "Pod name like that of a Kubernetes Deployment, {what}."),
    "owner": ("run-by-kubernetes", "Run by Kubernetes as a {kind}, {what}."),
    "partition": ("partition-says", "Slurm partition {name}: {what}."),
    "qos": ("qos-says", "Slurm QOS {name}: {what}."),
    "namespace": ("namespace-says", "Namespace {name}: {what}."),
    "part": ("holds-a-part", "Holds {held}, {what}."),
}
_HELD = {"mig-instance": "a MIG instance", "shared-gpu": "a GPU shared with other workloads"}


COUNTED, COUNTED_NONE, WITHIN_TRAINING = "counted-requests", "counted-none", "within-training"
# Somebody is served where a request runs for a hundredth of the time (a quarter of an hour a day), or where a few dozen
# answers a day are generated. That contradicts rest counted on the GPU: light requests show in no minute's mean.
_RUNNING, _TOKENS = 0.01, 0.1
RULED_OUT = -12.0  # log-odds
# An owner that speaks for training by so much keeps trainers; an engine within one generates for it.
_TRAINER = 1.5
# Steps: so much of the time a period is seen, in which GPUs meet over NVLink or nodes over the fabric.
_PERIODIC, _NVLINK, _FABRIC = 0.3, 0.05, 0.02


def engine_clue(session: Session, features: Features, engine: EngineFacts, priors: KindPriors) -> Clue:
    """A server that counted requests serves, whatever its shape. Not so where its owner trains models, or the GPUs work
    in steps in which they meet: then the engine generates for the training (RLHF)."""
    shown = WITHIN_TRAINING if _trains(session, features, priors) else COUNTED if engine.has_counted else COUNTED_NONE
    match = priors.first("engine", shown, features.get("chain_hours", session.chain_hours))
    weights: dict[str, float] = {} if match is None else {**match[0].log_odds}
    busy = (engine.running or 0.0) >= _RUNNING or (engine.generated_tokens_per_second or 0) >= _TOKENS
    if shown == COUNTED and busy:
        weights["idle"] = RULED_OUT
    values = ((getattr(engine, name), scale, text) for name, scale, text in _FIGURES)
    figure_words = [text.format(scale * value) for value, scale, text in values if value is not None]
    figures = {} if shown == COUNTED_NONE else {"figures": ", ".join([f"{engine.hours:.0f} h observed", *figure_words])}
    return Clue(weights, coded(
        *_ENGINE_SAID[shown], **figures, engines=", ".join(engine.engines) or "an inference engine",
        hours=engine.hours, prompt_tokens_per_second=engine.prompt_tokens_per_second,
        generated_tokens_per_second=engine.generated_tokens_per_second, requests_running=engine.running,
        requests_waiting=engine.waiting, kv_cache_usage=engine.kv_cache,
    ))  # fmt: skip


def _trains(session: Session, features: Features, priors: KindPriors) -> bool:
    owner = priors.first("owner", session.scheduled.controller_kind, features.get("chain_hours", session.chain_hours))
    weights = owner[0].log_odds if owner is not None else {}
    if weights.get("training", 0.0) >= _TRAINER and weights.get("online-inference", 0.0) <= 0:
        return True
    # Kept running is what trainers are not: an owner that speaks for serving has the last word over steps.
    if weights.get("online-inference", 0.0) >= _TRAINER:
        return False
    steps = features.get("period_share", 0.0) >= _PERIODIC
    meets = features.get("nodes", 1.0) >= 2 and features.get("fabric_utilization", 0.0) >= _FABRIC
    return steps and (meets or features.get("nvlink_utilization", 0.0) >= _NVLINK)


# What is said of an engine's figures where they are known.
_FIGURES = (
    ("generated_tokens_per_second", 1, "{:.1f} tokens/s generated"),
    ("prompt_tokens_per_second", 1, "{:.1f} prompt tokens/s"),
    ("running", 1, "{:.1f} requests running"),
    ("waiting", 1, "{:.1f} waiting"),
    ("kv_cache", 100, "KV cache {:.0f} % full (95th percentile)"),
)
_ENGINE_SAID = {
    WITHIN_TRAINING: (
        "engine-within-training",
        "Metrics of {engines} ({figures}) come from within training work: typical of generation during training, not "
        "counted as a sign of serving.",
    ),
    COUNTED_NONE: (
        "engine-counted-none",
        "Metrics of {engines} show no request in {hours:.0f} h: an unused server, or an engine inside other work.",
    ),
    COUNTED: ("engine-serves", "Inference server: metrics of {engines} ({figures})."),
}
