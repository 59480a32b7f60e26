"""The archetypes of training and fine-tuning."""

from typing import Any

from . import training_draws as draw
from .archetype import Archetype, Draw, Gpus, Shapes
from .training_draws import runs_of

FIX = {"fix-first": True}
BIG = ("h100-ib", "h200-ib", "b200-ib", "a100-ib")
CARDS = ("l40s-4", "a10g-4", "l4-2", "a100-40-eth", "a100-eth")
SLOW, OPEN = {"under-tier": True}, {"fix-first": None}
NO = {"too-many-gpus": None}


def _train(name: str, limit: str | None, shapes: Shapes, gpus: Gpus, course: Draw, **more: Any) -> Archetype:
    return Archetype(name, "training", limit, shapes, gpus, more.pop("life", "long"), course, "train", **more)


def _tune(name: str, limit: str, shapes: Shapes, gpus: Gpus, course: Draw, **more: Any) -> Archetype:
    return Archetype(name, "fine-tuning", limit, shapes, gpus, "runs", course, "tune", **more)


TRAININGS = (
    _train(
        "pretrain-gang", "compute", ("h100-ib", "h200-ib", "a100-ib"), (16,), runs_of(draw.dense), life="whole", nodes=2
    ),
    _train("pretrain-node", "compute", BIG, (8,), runs_of(draw.dense)),
    _train("pretrain-pipeline", None, ("h100-ib", "a100-ib"), (8,), draw.stages),
    _train(
        "gang-network",
        "network",
        ("a10g-4", "l40s-4", "a100-40-eth"),
        (8,),
        runs_of(draw.network),
        nodes=2,
        count=3,
        sure=SLOW,
    ),
    _train("tensor-parallel", "nvlink", ("h100-ib", "a100-ib"), (4,), runs_of(draw.nvlink), count=3),
    _train("cards-exchange", "pcie", ("l40s-4", "a10g-4"), (4,), runs_of(draw.pcie), count=2, sure=SLOW),
    _train("train-loader", "host-input", CARDS, (1, 2, 4), runs_of(draw.host), count=3, sure=FIX),
    _train("train-launch", "latency", CARDS, (1, 1, 2), runs_of(draw.launch), count=3, sure={**FIX, **NO}),
    _train(
        "train-straggler", "straggler", ("a100-ib", "h100-ib", "a100-eth"), (4, 4, 8), draw.straggler, count=3, sure=FIX
    ),
    _train(
        "train-warm", "throttled", ("l40s-4", "a10g-1", "a10g-4"), (1, 4), draw.warm(draw.dense), count=2, sure=OPEN
    ),
    _train("train-card", "compute", CARDS, (1,), runs_of(draw.dense), count=2),
    _train("train-embedding", "hbm-bandwidth", CARDS, (1, 2), runs_of(draw.memory_bound)),
    _train("train-mixed", "mixed", ("a100-eth", "a100-ib", "l40s-4"), (1, 4), runs_of(draw.mixed), count=2),
    _tune("lora", "compute", (*CARDS, "h100-aws"), (1,), runs_of(draw.lora), count=4),
    _tune("lora-pair", "compute", ("a100-eth", "l40s-4", "h100-aws"), (2, 4), runs_of(draw.lora), count=2),
    _tune("tune-node", "compute", BIG, (8,), runs_of(draw.dense), run_hours=(5, 16), gap_hours=(6, 24)),
    _tune("tune-slice", "compute", ("mig",), (1,), runs_of(draw.lora), count=3),
    _tune("tune-loader", "host-input", CARDS, (1,), runs_of(draw.host), sure=FIX),
    _tune("tune-launch", "latency", CARDS, (1,), runs_of(draw.launch), sure={**FIX, **NO}),
    _tune("tune-offload", "pcie", ("l40s-4", "a10g-1"), (1,), runs_of(draw.offload), sure={"under-tier": None}),
    _tune("tune-mixed", "mixed", CARDS, (1,), runs_of(draw.mixed)),
    _tune("tune-warm", "throttled", ("l40s-4", "a10g-1"), (1,), draw.warm(draw.lora), sure=OPEN),
)
