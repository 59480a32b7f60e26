"""Held MIG instances on fewer GPUs: where profiles may lie, what falls free, and where nothing is said."""

from __future__ import annotations

import pytest
from skuwise.advisor.classify.types import MigInstance
from skuwise.advisor.moves.predict.mig_packing import fits, pack

SLICES = {
    "1g.10gb": (1, 1),
    "1g.20gb": (1, 2),
    "2g.20gb": (2, 2),
    "3g.40gb": (3, 4),
    "4g.40gb": (4, 4),
    "7g.80gb": (7, 8),
}


def instance(gpu: str, number: int, profile: str = "1g.10gb", held: bool = True) -> MigInstance:
    compute, memory = SLICES.get(profile, (None, None))
    return MigInstance("n", f"{gpu}/{number}", gpu, profile, compute, memory, ("w",) if held else ())


@pytest.mark.parametrize(
    ("profiles", "possible"),
    [
        (["1g.10gb"] * 7, True), (["1g.10gb"] * 8, False), (["3g.40gb"] * 2, True), (["3g.40gb"] * 3, False),
        (["4g.40gb", "3g.40gb"], True), (["4g.40gb", "4g.40gb"], False), (["3g.40gb", "2g.20gb", "1g.10gb"], True),
        (["3g.40gb", "3g.40gb", "1g.10gb"], False), (["2g.20gb"] * 3 + ["1g.10gb"], True), (["7g.80gb"], True),
        (["2g.20gb"] * 4, False), (["1g.20gb"] * 4, True), (["1g.20gb"] * 3 + ["2g.20gb"], True),
    ],
)  # fmt: skip
def test_a_gpu_holds_what_nvidias_placements_allow(profiles: list[str], possible: bool) -> None:
    assert fits([SLICES[one] for one in profiles]) is possible


def test_the_emptiest_gpu_is_emptied_onto_the_others() -> None:
    own = [instance("a", 1, "3g.40gb"), instance("a", 2), instance("b", 1), instance("b", 2, "3g.40gb", held=False)]
    packing = pack(own)
    assert packing is not None
    assert (packing.kept, packing.freed, [one.gpu_uuid for one in packing.moved]) == (("a",), ("b",), ["b/1"])
