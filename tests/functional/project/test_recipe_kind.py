"""The recipe for a kind of recommendation: its label and one module, seen in advice, JSON, explain and the ledger."""

from __future__ import annotations

import json

import pytest
from skuwise.tests.support.recipe_tree import RecipeTree

LABELS = "advisor/core/advice_types.py"
LABEL = {'    "fix-first",\n]': '    "fix-first",\n    "toy-rename",\n]'}
PATH = "advisor/moves/kinds/toy_rename.py"
MODULE = '''\
"""A toy: work gets another name, and counts as done where it runs at all."""

from __future__ import annotations

from ...core.coded_text import coded
from ..context.fleet_context import FleetContext
from ..context.recommendation_kind import RecommendationKind
from ..tracking.move_state import MoveState
from ..tracking.observation import Observation, PredictionSnapshot, hours


def _build(fleet: FleetContext):
    for series in fleet.movable:
        yield series.recommend(
            "toy-rename", "better-name", place="name",
            text="Call it otherwise.", risk="low", freed_gpu_hours_per_month=7.0,
            would_change_if=(coded("toy", "the name is good"),),
        )


def _state(snapshot: PredictionSnapshot, seen: Observation, _: bool) -> MoveState | None:
    now = seen.now(snapshot.series_id)
    return MoveState("target", seen.start, hours(now), "It has a name.") if now else None


KIND = RecommendationKind(
    actions=("toy-rename",),
    rank=50,
    build=_build,
    title=lambda _, of: f"Rename {of.name}",
    words=lambda _: "another name",
    subject="Another name",
    state=_state,
    done_hours=1.0,
    unasked_hours=None,
)
'''
END = "2026-11-20T00:00:00Z"
WINDOW = ("--db", "fleet", "--since", "2d", "--ledger", "ledger.db")


@pytest.fixture
def tree(tmp_path_factory: pytest.TempPathFactory) -> RecipeTree:
    made = RecipeTree.of(tmp_path_factory.mktemp("recipe"))
    done = made.run("simulate", "founding", "--db", "fleet", "--days", 4, "--seed", 3, "--until", END)
    assert done.returncode == 0, done.stderr
    return made


def advise(tree: RecipeTree, until: str = END) -> dict:
    done = tree.run("advise", *WINDOW, "--until", until, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_kind_is_a_label_and_a_module_added_and_removed(tree: RecipeTree) -> None:
    before = advise(tree, "2026-11-19T00:00:00Z")["recommendations"]
    tree.change(LABELS, LABEL)
    tree.add(PATH, MODULE)
    after = advise(tree, "2026-11-19T00:00:00Z")["recommendations"]
    (toy,) = [r for r in after if r["action"] == "toy-rename"]
    assert [r for r in after if r is not toy] == before
    assert toy["freed_gpu_hours_per_month"] == 7.0
    explained = tree.run("explain", toy["id"], *WINDOW, "--until", END)
    assert "Rename " in explained.stdout
    accepted = tree.run("ledger", "accept", toy["id"], "--by", "ann", "--ledger", "ledger.db")
    assert accepted.returncode == 0, accepted.stderr
    advise(tree)  # a day later its own module tells that it is done
    shown = tree.run("ledger", "show", toy["id"], "--ledger", "ledger.db")
    assert "done" in shown.stdout
    assert "It has a name." in shown.stdout
    tree.remove(PATH)
    tree.change(LABELS, {after: before for before, after in LABEL.items()})
    assert {r["action"] for r in advise(tree)["recommendations"]} == {r["action"] for r in before}
    # What another version noted stays readable.
    assert toy["id"] in tree.run("ledger", "list", "--all", "--ledger", "ledger.db").stdout


@pytest.mark.parametrize(
    ("labelled", "module", "said"),
    [
        (True, None, "toy-rename: an action is a label of advice_types.Action and of one module in moves/kinds"),
        (False, MODULE, "toy-rename: an action is a label of advice_types.Action and of one module in moves/kinds"),
        (True, "x = 1\n", "needs a RecommendationKind named KIND"),
        (True, MODULE.replace("    state=_state,\n", ""), "argument: 'state'"),
        (True, MODULE.replace("    build=_build,\n", ""), "argument: 'build'"),
        (True, MODULE.replace('subject="Another name"', 'subject=""'), "its name in a sentence"),
    ],
)
def test_a_kind_that_lacks_a_part_is_refused(tree: RecipeTree, labelled: bool, module: str | None, said: str) -> None:
    if labelled:
        tree.change(LABELS, LABEL)
    if module is not None:
        tree.add(PATH, module)
    done = tree.run("--debug", "advise", *WINDOW, "--until", END)
    assert done.returncode != 0
    assert said in done.stderr
