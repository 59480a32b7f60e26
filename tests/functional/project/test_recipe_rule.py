"""The recipe for a waste rule: one YAML file and one module, seen wherever findings are, and gone with the files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from skuwise.tests.support.recipe_tree import RecipeTree

YAML = """\
id: toy-large
severity: low
resolution: window
text: "{workload} holds {gpu_count} GPUs, {gpus_min} or more."
would_change_if: [Somebody counts otherwise.]
exceptions: []
thresholds:
  gpus_min:
    value: 4
    unit: count
    resolution: window
    reason: a toy
    source: this test
"""
MODULE = '''\
"""A toy: work that holds many GPUs."""

from __future__ import annotations

from ....rules.policy.thresholds import WasteRule
from ...core.advice_types import Evidence
from ...core.number_sources import GPU_COUNT
from ..context.finding_context import FindingContext
from ..context.rule_context import RuleContext, RuleDescription, RuleResult, finding_of


def toy_large(context: RuleContext, rule: WasteRule) -> RuleResult:
    found = []
    for group in context.judged:
        if group.gpu_count >= rule.value("gpus_min"):
            evidence = (Evidence("gpus_held", float(group.gpu_count), rule.value("gpus_min"), "GPUs"),)
            finding = finding_of(context, rule, group, evidence=evidence, gpu_hours=1.0, cost=2.0)
            found.append(FindingContext(finding, group, group.nodes))
    return found, []


RULE = RuleDescription(
    id="toy-large",
    rank=50,
    judge=toy_large,
    answered_by={"reduce-gpus": 9},
    waste="surplus",
    fact="holds many GPUs",
    metrics={"gpus_held": GPU_COUNT},
)
'''
FILES = {"rules/waste/toy-large.yaml": YAML, "advisor/moves/waste/toy_large.py": MODULE}
END = "2026-11-20T00:00:00Z"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> RecipeTree:
    made = RecipeTree.of(tmp_path_factory.mktemp("recipe"))
    done = made.run("simulate", "founding", "--db", "fleet", "--days", 3, "--seed", 3, "--until", END)
    assert done.returncode == 0, done.stderr
    return made


def advise(tree: RecipeTree, *more: str) -> dict:
    ledger = Path("ledger.db")
    done = tree.run(
        "advise", "--db", "fleet", "--since", "3d", "--until", END, "--ledger", ledger, "--format", "json", *more
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_rule_is_two_files_added_and_removed(tree: RecipeTree) -> None:
    before = advise(tree)
    for path, text in FILES.items():
        tree.add(path, text)
    after = advise(tree)
    (finding,) = [f for f in after["findings"] if f["rule"] == "toy-large"]
    assert [f for f in after["findings"] if f["rule"] != "toy-large"] == before["findings"]
    assert finding["text"].startswith("The online inference service")
    (fewer,) = [r for r in after["recommendations"] if r["action"] == "reduce-gpus"]
    assert finding["id"] in fewer["findings"]  # what answers it says so
    assert after["summary"]["wasted_usd"] != before["summary"]["wasted_usd"]  # as the description says what it is
    explained = tree.run("explain", finding["id"], "--db", "fleet", "--since", "3d", "--until", END, "--query")
    assert "AS gpus_held" in explained.stdout
    assert "toy-large" in tree.run("rules", "list").stdout
    ledger = tree.run("ledger", "list", "--all", "--ledger", "ledger.db", "--format", "json")
    assert fewer["id"] in ledger.stdout
    for path in FILES:
        tree.remove(path)
    assert advise(tree)["findings"] == before["findings"]
    assert "toy-large" not in tree.run("rules", "list").stdout


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"rules/waste/toy-large.yaml": YAML}, "toy-large: a rule needs both a file in rules/waste and a module"),
        ({"advisor/moves/waste/toy_large.py": MODULE}, "toy-large: a rule needs both a file in rules/waste and a"),
        ({**FILES, "advisor/moves/waste/toy_large.py": "x = 1\n"}, "needs a RuleDescription named RULE"),
        ({**FILES, "advisor/moves/waste/toy_large.py": MODULE.replace('    rank=50,\n', "")}, "argument: 'rank'"),
        ({**FILES, "advisor/moves/waste/toy_large.py": MODULE.replace('{"gpus_held": GPU_COUNT}', "{}")}, "metrics"),
        ({**FILES, "advisor/moves/waste/toy_large.py": MODULE.replace('{"reduce-gpus": 9}', "{}")}, "answers"),
    ],
)  # fmt: skip
def test_a_rule_that_lacks_a_part_is_refused(tree: RecipeTree, files: dict[str, str], said: str) -> None:
    for path, text in files.items():
        tree.add(path, text)
    try:
        done = tree.run("--debug", "advise", "--db", "fleet", "--since", "3d", "--until", END, "--no-ledger")
        assert done.returncode != 0
        assert said in done.stderr
    finally:
        for path in files:
            tree.remove(path)
