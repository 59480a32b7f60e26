"""What a cluster calls a workload: names, namespaces, owners and images, some of them misleading."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .archetype import Archetype

_GENERATED = "bcdfghjklmnpqrstvwxz2456789"
_REGISTRY = ("registry.example.com/ml/app", "registry.example.com/platform/base", "harbor.example.org/research/image")

# Role -> (owner's kind, image) that are usual; a registry of one's own is added with a chance.
_USUAL: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "train": (
        ("PyTorchJob", "Job", "PyTorchJob", "MPIJob", "RayCluster"),
        (
            "nvcr.io/nvidia/pytorch:25.06-py3",
            "nvcr.io/nvidia/nemo:25.04",
            "pytorch/pytorch:2.7.0-cuda12.6-cudnn9-runtime",
        ),
        ("pretrain", "gpt", "resnet", "encoder", "diffusion", "recsys", "dlrm", "asr"),
    ),
    "tune": (
        ("Job", "PyTorchJob", "Workflow", "Job"),
        (
            "axolotlai/axolotl:main-latest",
            "pytorch/pytorch:2.7.0-cuda12.6-cudnn9-runtime",
            "hiyouga/llamafactory:0.9.3",
        ),
        ("sft", "lora", "qlora", "dpo", "finetune", "adapter"),
    ),
    "llm": (
        ("Deployment", "Deployment", "StatefulSet", "InferenceService"),
        (
            "vllm/vllm-openai:v0.10.1",
            "lmsysorg/sglang:v0.5.2-cu126",
            "ghcr.io/huggingface/text-generation-inference:3.3.4",
        ),
        ("llama", "qwen", "chat", "assistant", "gateway", "summarizer"),
    ),
    "triton": (
        ("Deployment", "InferenceService", "Deployment"),
        ("nvcr.io/nvidia/tritonserver:25.06-py3", "nvcr.io/nim/nvidia/nv-embedqa:1.6", "pytorch/torchserve:0.12.0-gpu"),
        ("ranker", "classifier", "ocr", "embedder", "speech", "moderation"),
    ),
    "image": (
        ("Deployment",),
        ("registry.example.com/creative/sdxl:7", "registry.example.com/creative/flux:3"),
        ("image-gen", "sdxl", "avatar", "design"),
    ),
    "batch": (
        ("Job", "CronJob", "Job"),
        ("vllm/vllm-openai:v0.10.1", "rayproject/ray:2.49.0-gpu"),
        ("nightly-score", "embed-corpus", "backfill", "transcribe", "labels"),
    ),
    "worker": (
        ("Deployment", "StatefulSet"),
        ("registry.example.com/media/worker:12",),
        ("worker", "consumer", "queue"),
    ),
    "notebook": (
        ("StatefulSet", "Notebook", "StatefulSet"),
        ("quay.io/jupyter/pytorch-notebook:cuda12", "kubeflownotebookswg/jupyter-pytorch-cuda-full:v1.10.0"),
        ("jupyter-alice", "jupyter-bob", "nb-carol", "workspace-dan", "jupyter-erin"),
    ),
    "dev": (
        ("Pod", "StatefulSet"),
        ("nvcr.io/nvidia/pytorch:25.06-py3", "nvidia/cuda:12.6.0-devel-ubuntu22.04"),
        ("dev", "shell", "sandbox"),
    ),
    "any": (
        ("Deployment", "Pod", "Job", "StatefulSet"),
        ("nvidia/cuda:12.6.0-devel-ubuntu22.04", "pytorch/pytorch:2.7.0"),
        ("job", "app", "service", "test", "tmp"),
    ),
}
LYING = 0.05  # of names and owners
PRIVATE = 0.4  # of images


@dataclass(frozen=True, slots=True)
class Name:
    """`pod` None: a Slurm job (`job`) or nothing that is labelled. `owner_kind`: what made the pods, at the top."""

    base: str
    namespace: str
    owner_kind: str
    image: str
    container: str
    pod: str | None = None
    owner: str = ""
    job: str | None = None

    def of_run(self, rng: np.random.Generator, scheduler: str, number: int) -> Name:
        """The name of one pod or job of it."""
        if scheduler == "slurm":
            return replace(self, job=str(int(rng.integers(100_000, 999_999))))
        if scheduler == "none":
            return self
        if self.owner_kind in ("Deployment", "InferenceService"):
            base = self.base + ("-predictor" if self.owner_kind == "InferenceService" else "")
            owner = f"{base}-{_random(np.random.default_rng(len(base) * 7919), 10)}"
            return replace(self, pod=f"{owner}-{_random(rng, 5)}", owner=owner)
        if self.owner_kind == "StatefulSet" or self.owner_kind == "Notebook":
            return replace(self, pod=f"{self.base}-{number}", owner=self.base)
        if self.owner_kind == "Pod":
            return replace(self, pod=f"{self.base}-{number}", owner="")
        if self.owner_kind == "CronJob":
            owner = f"{self.base}-{29_300_000 + number * 1440}"
            return replace(self, pod=f"{owner}-{_random(rng, 5)}", owner=owner)
        if self.owner_kind in ("PyTorchJob", "MPIJob"):
            owner = f"{self.base}-{_random(rng, 4)}"
            return replace(self, pod=f"{owner}-worker-0", owner=owner)
        if self.owner_kind == "RayCluster":
            owner = f"{self.base}-raycluster-{_random(rng, 5)}"
            return replace(self, pod=f"{owner}-worker-gpu-{_random(rng, 5)}", owner=owner)
        owner = f"{self.base}-{_random(rng, 5)}"
        return replace(self, pod=f"{owner}-{_random(rng, 5)}", owner=owner)

    def of_node(self, number: int) -> Name:
        """The pod of a gang on its node of that number."""
        if self.pod is None or number == 0:
            return self
        if self.pod.endswith("-worker-0"):
            return replace(self, pod=f"{self.pod[:-1]}{number}")
        return replace(self, pod=f"{self.pod[:-1]}{_GENERATED[number]}")


def _random(rng: np.random.Generator, count: int) -> str:
    return "".join(str(c) for c in rng.choice(list(_GENERATED), count))


def name_of(rng: np.random.Generator, archetype: Archetype, number: int) -> Name:
    """What it is called."""
    role = archetype.role
    is_lying = rng.random() < LYING
    partition = str(rng.choice(list(_USUAL))) if is_lying else role
    kinds, images, words = _USUAL[partition]
    owners = _USUAL[role][0] if not is_lying or rng.random() < 0.5 else kinds
    kind = str(rng.choice(owners))
    if archetype.life == "nightly":
        kind = "CronJob"
    elif kind == "CronJob":
        kind = "Job"
    image = f"{rng.choice(_REGISTRY)}:{rng.integers(1, 90)}" if rng.random() < PRIVATE else str(rng.choice(images))
    if archetype.engine is not None and not is_lying and image in images:
        image = next(candidate for candidate in images if archetype.engine in candidate)
    word = str(rng.choice(words))
    base = f"{word}-{number}" if rng.random() < 0.8 else f"{rng.choice(['app', 'ml', 'exp'])}-{number}"
    space = str(rng.choice(["ml", "research", "prod", "platform", "team-a", "team-b"]))
    return Name(base, space, kind, image, "main")
