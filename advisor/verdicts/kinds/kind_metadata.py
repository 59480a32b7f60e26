"""What people and schedulers say about a workload: priors for its kind, stated by hand.

Log-odds, with the reason beside each group. They are judgements and stay so: the names in simulated fleets were made
up, and a model that learnt them would learn its teacher's vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ...core.coded_text import coded
from ..workloads.session import Session
from .clue import Clue

Weights = Mapping[str, float]

# A framework was seen in the process itself and hardly lies (3.0: twenty to one); the same word in a command line may
# be a path or a wrapper and counts four fifths.
_TRAIN_LIKE: Weights = {"training": 2.5, "fine-tuning": 2.5}
_IN_COMMAND = 0.8
_FRAMEWORKS: tuple[tuple[str, Weights, str], ...] = (
    (
        r"vllm|sglang|tensorrt[-_ ]?llm|trtllm|tritonserver|triton[-_ ]inference|text[-_]generation|\btgi\b|lmdeploy",
        {"online-inference": 3.0, "batch-inference": 1.2},
        "a serving engine",
    ),
    (r"torchrun|deepspeed|megatron|fsdp|accelerate|nemo|torch\.distributed", _TRAIN_LIKE, "a training launcher"),
    (r"jupyter|ipykernel|notebook|code-server", {"interactive": 3.0}, "a notebook"),
)
# Words of a command line. They come from people, so they persuade but do not decide.
_WORDS: tuple[tuple[str, Weights, str], ...] = (
    (r"fine[-_]?tun\w*|\bsft\b|q?lora\b|\bdpo\b|\brlhf\b", {"fine-tuning": 3.0, "training": 0.5}, "fine-tuning"),
    (r"pre[-_]?train\w*", {"training": 3.0}, "pretraining"),
    (r"(?<![a-z])train(ing|er)?(?![a-z])", {"training": 2.0, "fine-tuning": 1.5}, "training"),
    (
        r"batch[-_]?(infer\w*|generat\w*|score|scoring)|run[-_]batch|offline|embed(ding)?s?[-_]?(job|batch)"
        r"|(?<![a-z])(embed|score|label|transcribe|generate)\w*[-_. ](corpus|all|images|docs|py)(?![a-z])",
        {"batch-inference": 3.0, "online-inference": -0.5},
        "batch inference",
    ),
    (r"api[-_]server|(?<![a-z])serv(e|er|ing)(?![a-z])|endpoint", {"online-inference": 2.5}, "serving"),
)
# What a container's image is made for, by its name without a tag. An engine's image runs the engine, mostly as a
# server; what a toolkit's image runs is another matter, and images of PyTorch run everything.
_ENGINE: Weights = {"online-inference": 2.4, "batch-inference": 1.0}
_IMAGES: tuple[tuple[str, Weights, str], ...] = (
    (
        r"vllm[-_]openai|(^|/)(vllm|sglang|lmdeploy|ollama)$|lmsysorg/sglang|text-generation-inference|tritonserver"
        r"|(^|/)huggingfaceserver|tensorrt-?llm|(^|/)nim/",
        _ENGINE,
        "a serving engine",
    ),
    (r"jupyter|notebook|code-server|rstudio", {"interactive": 2.4}, "a notebook"),
    (r"(^|/)axolotl", {"fine-tuning": 2.4, "training": 0.5}, "fine-tuning"),
    (r"(^|/)nemo($|[-_])|megatron|(^|/)maxtext", {"training": 1.2, "fine-tuning": 1.2}, "training"),
    (r"(^|/)pytorch($|[-_])", {"training": 0.3, "fine-tuning": 0.3}, "PyTorch, which trains more often than it serves"),
)
# What Kubernetes keeps for one purpose, by the kind of the object that owns the pods.
_KEPT: Weights = {"online-inference": 0.8}
_TRAINED: Weights = {"training": 2.0, "fine-tuning": 2.0}
_ENDS: Weights = {"training": 0.4, "fine-tuning": 0.4, "batch-inference": 0.4, "online-inference": -0.3}
_OWNERS: Mapping[str, tuple[Weights, str]] = {
    **dict.fromkeys(
        ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "TrainJob"), (_TRAINED, "which trains models")
    ),
    "MPIJob": ({"training": 1.2, "fine-tuning": 1.2}, "which mostly trains models"),
    "InferenceService": ({"online-inference": 2.5}, "which serves a model"),
    "Notebook": ({"interactive": 3.0}, "which somebody works in"),
    "Deployment": (_KEPT, "which is kept running"),
    "LeaderWorkerSet": (_KEPT, "which is kept running"),
    **dict.fromkeys(("Job", "CronJob", "JobSet"), (_ENDS, "which ends")),
}
# Deployments name their pods NAME-<replica set>-<five letters>; a prior only.
_DEPLOYMENT_POD = re.compile(r"-[a-f0-9]{8,10}-[a-z0-9]{5}$")
# Slurm runs jobs that end; a service under Slurm is the exception (half a unit: five to three).
_SLURM: Weights = {"training": 0.4, "fine-tuning": 0.4, "batch-inference": 0.2, "online-inference": -0.3}


def metadata_clues(session: Session) -> Iterator[Clue]:
    """Clues from framework, image, command, name and owner; nothing where they say nothing."""
    framework = (session.framework or "").lower()
    command = " ".join(t for t in (session.command, session.name) if t).lower()
    image = _image_clue(session.scheduled.image) if not framework else None
    if image is not None:
        yield image
    # What the image tells a name tells no better.
    is_told = image is not None and max(image.weights.values()) > 1
    for pattern, weights, what in () if is_told else _FRAMEWORKS:
        if framework and re.search(pattern, framework):
            said = coded("framework", "Its framework is {name}, {what}.", name=session.framework, what=what)
            yield Clue(weights, said)
            break
        if re.search(pattern, command):
            said = coded("command-names", "Its command names {what}.", what=what)
            yield Clue({k: _IN_COMMAND * w for k, w in weights.items()}, said)
            break
    for pattern, weights, what in _WORDS:
        match = re.search(pattern, command)
        if match:
            said = coded("command-says", "Its command or name says “{word}”: {what}.", word=match.group(0), what=what)
            yield Clue(weights, said)
            break
    if session.scheduler == "slurm":
        yield Clue(_SLURM, coded("started-by-slurm", "It was started by Slurm, which mostly runs jobs that end."))
    elif (kind := session.scheduled.controller_kind) is not None:
        if kind in _OWNERS:
            weights, what = _OWNERS[kind]
            yield Clue(
                weights, coded("run-by-kubernetes", "Kubernetes runs it as a {kind}, {what}.", kind=kind, what=what)
            )
    elif session.pod and _DEPLOYMENT_POD.search(session.pod):
        said = coded("pod-of-a-deployment", "Its pod is named like one of a Kubernetes Deployment, kept running.")
        yield Clue({"online-inference": 0.8}, said)


def _image_clue(image: str | None) -> Clue | None:
    """What the image's name tells, without its tag or digest: these may say anything."""
    name = (image or "").lower().split("@", maxsplit=1)[0]
    head, slash, last = name.rpartition("/")
    name = f"{head}{slash}{last.split(':', maxsplit=1)[0]}"
    for pattern, weights, what in _IMAGES:
        if name and re.search(pattern, name):
            return Clue(weights, coded("image", "Its image {image} is made for {what}.", image=name[-80:], what=what))
    return None
