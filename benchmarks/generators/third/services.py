"""The archetypes of serving, batch inference, notebooks and held GPUs."""

from typing import Any

from . import service_draws as draw
from .archetype import Archetype, Draw, Gpus, Shapes

CARDS = ("l40s-4", "a10g-4", "l4-2", "a100-40-eth", "a100-eth")
SMALL = ("t4-1", "l4-1", "a10g-1", "t4-4", "l4-2")
HBM = ("h100-azure", "h100-aws", "h200-ib", "b200-ib", "a100-eth")
PRICED = {"under-tier": None}
HELD = {"held-idle": True}
NOT = {"held-idle": None}


def _serves(
    name: str, limit: str | None, shapes: Shapes, gpus: Gpus, course: Draw, role: str, **more: Any
) -> Archetype:
    return Archetype(name, "online-inference", limit, shapes, gpus, more.pop("life", "whole"), course, role, **more)


def _llm(name: str, limit: str | None, shapes: Shapes, gpus: Gpus, course: Draw, **more: Any) -> Archetype:
    return _serves(name, limit, shapes, gpus, course, "llm", preallocates=True, **more)


def _batch(name: str, limit: str, shapes: Shapes, gpus: Gpus, work: str, **more: Any) -> Archetype:
    usual = {"life": "finite", "draw": draw.batch(work), "independent": True, "run_hours": (8, 40), **more}
    return Archetype(name, "batch-inference", limit, shapes, gpus, role="batch", **usual)


def _people(name: str, shapes: Shapes, gpus: Gpus, role: str, **more: Any) -> Archetype:
    return Archetype(name, "interactive", "idle", shapes, gpus, "whole", draw.notebook, role, **more)


def _idle(name: str, shapes: Shapes, gpus: Gpus, course: Draw, role: str, **more: Any) -> Archetype:
    return Archetype(name, "idle", "idle", shapes, gpus, "whole", course, role, **more)


SERVICES = (
    _llm("llm-light", None, (*CARDS, "h100-aws"), (1,), draw.light, count=3, engine="vllm"),
    _llm("llm-no-nights", None, (*CARDS, "h100-aws"), (1,), draw.no_nights, count=2, engine="vllm"),
    _serves("image-generation", None, CARDS, (1,), draw.images, "image", count=2, pods=2),
    _serves("small-model", None, SMALL, (1,), draw.small_model, "triton", count=3),
    _llm("slice-llm", None, ("mig",), (1,), draw.light, count=2, engine="vllm"),
    _serves("slice-small", None, ("mig",), (1,), draw.small_model, "triton", count=2),
    _llm("decode-priced", "hbm-bandwidth", ("h100-azure",), (1,), draw.decode, count=2, engine="vllm"),
    _llm("decode-one", "hbm-bandwidth", HBM, (1,), draw.decode, count=2, engine="vllm"),
    _llm("decode-many", "hbm-bandwidth", ("h100-aws", "h200-ib", "a100-eth"), (2, 4), draw.decode, engine="sglang"),
    _llm("prompts", "compute", ("h100-aws", "a100-eth", "l40s-4"), (1, 2), draw.prompts, count=2, engine="vllm"),
    _llm("experts", None, ("h200-ib", "h100-ib"), (8,), draw.experts, engine="sglang", sure={"idle-nvlink": False}),
    _llm("prefill-side", "compute", ("h100-ib",), (4,), draw.disaggregated(True)),
    _llm("decode-side", "hbm-bandwidth", ("h100-ib",), (4,), draw.disaggregated(False)),
    _llm("tensor-parallel-cards", "pcie", ("l40s-4", "a10g-4"), (4,), draw.over_pcie, engine="vllm", sure=PRICED),
    _serves(
        "oversized",
        None,
        ("a100-eth", "h100-ib", "a100-ib"),
        (2, 4),
        draw.oversized,
        "triton",
        independent=True,
        count=3,
    ),
    _serves(
        "oversized-cards",
        None,
        ("l40s-4", "t4-4", "a10g-4"),
        (2, 4),
        draw.oversized,
        "triton",
        independent=True,
        count=2,
    ),
    _llm("scaled", None, CARDS, (1,), draw.light, life="replicas", engine="vllm", pods=3),
    _serves(
        "shared-services",
        None,
        ("shared",),
        (1,),
        draw.small_model,
        "triton",
        count=2,
        pods=3,
        sure={"too-many-gpus": None, "memory-unused": None},
    ),
    _batch("nightly", "compute", CARDS, (1, 2), "embed", life="nightly", count=2, run_hours=(1.5, 6)),
    _batch(
        "nightly-decode",
        "hbm-bandwidth",
        (*CARDS, "h100-aws"),
        (1, 2),
        "decode",
        life="nightly",
        count=2,
        preallocates=True,
        run_hours=(2, 7),
    ),
    _batch("embedding", "compute", CARDS, (1, 2, 4), "embed", count=3),
    _batch("offline-decode", "hbm-bandwidth", HBM, (1, 2, 4), "decode", count=3, preallocates=True),
    _batch("video", "host-input", ("l4-1", "a10g-1", "t4-1"), (1,), "decode-video", count=2, sure={"fix-first": True}),
    _batch("streamed-weights", "pcie", ("l40s-4", "a10g-1"), (1,), "stream", independent=False, preallocates=True),
    Archetype(
        "queue-worker",
        "batch-inference",
        None,
        CARDS,
        (1,),
        "queue",
        draw.worker,
        "worker",
        count=2,
        sure={"held-idle": None},
    ),
    _batch("slice-batch", "compute", ("mig",), (1,), "embed", count=2),
    _people("notebook", (*CARDS, "t4-1"), (1,), "notebook", count=6, sure=NOT),
    _people("slice-notebook", ("mig",), (1,), "notebook", count=4, sure=NOT),
    _people(
        "dev-pair",
        ("a100-eth", "l40s-4"),
        (2,),
        "dev",
        independent=True,
        count=2,
        sure={**NOT, "too-many-gpus": None, "idle-nvlink": None},
    ),
    _people("shared-notebooks", ("shared",), (1,), "notebook", count=2, pods=3, sure=NOT),
    _idle("held", (*CARDS, "h100-ib", "a100-ib"), (1, 2, 4), draw.held, "any", count=6, sure=HELD),
    _idle("held-node", ("a100-ib", "h100-ib", "a100-eth"), (8,), draw.held, "train", sure=HELD),
    _idle("held-slice", ("mig",), (1,), draw.held, "any", count=2, sure=HELD),
    _idle("never-used", (*CARDS, "t4-1"), (1, 2), draw.nothing, "any", count=3, sure=NOT),
    Archetype("ended", None, None, (*CARDS, "a100-ib"), (1, 2, 4), "ended", draw.ended, "train", count=2, sure=HELD),
    Archetype(
        "hung",
        None,
        None,
        ("a100-ib", "a100-eth"),
        (4,),
        "ended",
        draw.hung,
        "train",
        sure={"held-idle": None, "fix-first": None, "too-many-gpus": None, "memory-unused": None, "idle-nvlink": None},
    ),
)
