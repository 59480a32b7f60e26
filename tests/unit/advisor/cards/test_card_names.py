"""Which job somebody means."""

from __future__ import annotations

from dataclasses import replace

import pytest
from skuwise.advisor.cards.runs import Run, named_run
from skuwise.advisor.core.naming import AmbiguousError
from skuwise.rules.base.errors import NothingToDo

ONE = Run("w-1f2e3d4c", "s-1", "train-7b", 1000.0, 5000.0, "slurm", "4711", cluster="eu", nodes=("n1",))
TASKS = [
    replace(ONE, id=f"w-aaaa{n}", name="sweep", job_id=f"{4800 + n}", task=f"4800_{n}", array_job_id="4800")
    for n in range(1, 4)
]
POD = Run("w-bbbb0001", "s-2", "chat", 0.0, 9.0, "kubernetes", namespace="ads", pod="chat-7f9c", nodes=("n2",))
ALL = [ONE, *TASKS, POD]


@pytest.mark.parametrize(
    ("asked", "id_"),
    [
        ("w-1f2e3d4c", "w-1f2e3d4c"), ("1f2e", "w-1f2e3d4c"), ("4711", "w-1f2e3d4c"), ("eu/4711", "w-1f2e3d4c"),
        ("4711@eu", "w-1f2e3d4c"), ("train-7b", "w-1f2e3d4c"), ("4800_2", "w-aaaa2"), ("4802", "w-aaaa2"),
        ("chat-7f9c", "w-bbbb0001"), ("ads/chat-7f9c", "w-bbbb0001"), (" chat ", "w-bbbb0001"),
    ],
)  # fmt: skip
def test_a_job_is_found_by_all_that_it_is_called(asked: str, id_: str) -> None:
    assert named_run(asked, ALL, str).run.id == id_


@pytest.mark.parametrize("asked", ["4800", "sweep"])
def test_several_jobs_are_listed(asked: str) -> None:
    with pytest.raises(AmbiguousError) as raised:
        named_run(asked, ALL, str)
    assert {one.id for one in raised.value.found} == {one.id for one in TASKS}


def test_of_a_requeued_job_it_is_the_newest_run() -> None:
    again = replace(ONE, id="w-2222", start=6000.0, end=7000.0)
    chosen = named_run("4711", [ONE, again], str)
    assert chosen.run.id == "w-2222" and [one.id for one in chosen.others] == [ONE.id]


@pytest.mark.parametrize("asked", ["train-8b", "9999", "us/4711", "", "n1", "';DROP TABLE cards;--"])
def test_what_names_nothing_is_nothing_to_work_on(asked: str) -> None:
    with pytest.raises(NothingToDo) as raised:
        named_run(asked, [], str, lambda: ALL)
    assert raised.value.exit_status == 3
    if asked == "train-8b":
        assert "train-7b" in raised.value.remedy
