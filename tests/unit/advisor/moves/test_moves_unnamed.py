"""GPUs that did nothing while somebody's memory lay on them, whom no label names."""

from __future__ import annotations

from dataclasses import replace

import pytest
from skuwise.advisor.core.verdict_types import INFERRED, Owner
from skuwise.tests.support.moves_builders import advice_of, bare, founding, node, verdicts


@pytest.mark.parametrize("held", [0, 1, 3, 4])
def test_memory_that_no_label_names_is_not_given_back_and_the_finding_says_so(held: int) -> None:
    gpus = [bare("n1", i, held_hours=336.0 if i < held else 0.0) for i in range(4)]
    given = advice_of(verdicts([node()], bare_gpus=gpus))
    (found,) = [one for one in given.findings if one.rule == "idle"]
    assert (f"memory in use on {held} of them" in found.text) == (held > 0)
    assert ("No workload holds them." in found.text) == (held == 0)
    released = [one for one in given.recommendations if one.action == "release"]
    assert [one.source.gpu_count for one in released] == ([4 - held] if held < 4 else [])
    if held == 3:
        assert (
            released[0].text.startswith("1 GPU of n1 idle for") and "Release 1 GPU for other work" in released[0].text
        )


def test_the_advice_says_how_much_work_has_no_owner_and_asks_where_something_could_be_done() -> None:
    named = founding()
    found = replace(named, workloads=tuple(replace(w, owner=Owner(), basis=INFERRED) for w in named.workloads))
    given = advice_of(found)
    (note,) = [one for one in given.notes if "owner" in one.text]
    assert note.text.startswith(f"The owner of {len(found.workloads)} of {len(found.workloads)} workload")
    assert not [one for one in advice_of(named).notes if "owner" in one.text]
    asked = [one for one in given.recommendations if one.workload is not None]
    assert asked
    for one in asked:
        assert any(why.code == "owner-unknown" for why in one.blocked_by)
        assert ("First ask who uses" in one.text) == (len(one.blocked_by) == 1)
    assert any("First ask who uses" in one.text for one in asked)
