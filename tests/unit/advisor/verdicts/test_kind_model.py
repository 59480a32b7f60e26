"""The model of kinds: read strictly, made reproducibly, and of what it declares."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.verdicts.kinds.kind_signals import PROBE, SHAPES, fingerprint, levels
from skuwise.advisor.verdicts.kinds.kinds import WORKING
from skuwise.benchmarks.fit import train_kinds as trainer
from skuwise.rules.base.errors import RulesError
from skuwise.rules.base.yaml_loader import packaged_rules
from skuwise.rules.models.kind_model import FILE, load_kind_model
from skuwise.tests.support.rulebooks import rulebook

ROOT = Path(__file__).parents[4]
NAMES = [shape.name for shape in SHAPES]


def test_the_model_that_ships_is_for_these_shapes_and_comes_of_what_is_declared() -> None:
    model = rulebook().kind_model
    assert model.labels == WORKING
    assert set(model.weights) == set(NAMES)
    assert model.inputs == trainer.inputs()
    assert "scipy" in model.trained["libraries"]


def test_another_shape_is_another_fingerprint() -> None:
    assert fingerprint(SHAPES) != fingerprint(SHAPES[1:])
    assert fingerprint(SHAPES) != fingerprint((*SHAPES[1:], SHAPES[0]))


def _altered(old: str, new: str, tmp_path: Path) -> Path:
    text = packaged_rules().joinpath(FILE).read_text()
    assert old in text
    path = tmp_path / FILE
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("  one-gpu:\n", "  one-gpus:\n", "unknown shape 'one-gpus'"),
        ("schema: skuwise.kind-model/1", "schema: skuwise.kind-model/2", "the schema is not"),
        ('fingerprint: "', 'fingerprint: "0', "made for other shapes"),
        ("intercepts:\n", "intercepts:\n  sleeping: 1\n", "unknown key 'sleeping'"),
        ("temperature:", "temperature: 0 #", "must be at least"),
        ("schema:", "schema: !!python/object/apply:os.system ['true'] #", "tags"),
        ("trained:\n", "extra: 1\ntrained:\n", "unknown key 'extra'"),
    ],
)
def test_what_the_code_does_not_know_is_refused(old: str, new: str, part: str, tmp_path: Path) -> None:
    with pytest.raises(RulesError, match=part):
        load_kind_model(WORKING, NAMES, fingerprint(SHAPES), _altered(old, new, tmp_path))


@pytest.mark.parametrize("weight", [".nan", ".inf", "21", "'1'"])
def test_a_weight_is_a_finite_number_of_plausible_size(weight: str, tmp_path: Path) -> None:
    text = packaged_rules().joinpath(FILE).read_text().splitlines()
    at = text.index("  one-gpu:") + 1
    text[at] = f"    training: {weight}"
    path = tmp_path / FILE
    path.write_text("\n".join(text))
    with pytest.raises(RulesError, match=f"{FILE}:{at + 1}"):
        load_kind_model(WORKING, NAMES, fingerprint(SHAPES), path)


def test_a_shape_without_weights_is_refused(tmp_path: Path) -> None:
    text = packaged_rules().joinpath(FILE).read_text().splitlines()
    at = text.index("  one-gpu:")
    path = tmp_path / FILE
    path.write_text("\n".join(text[:at] + text[at + 1 + len(WORKING) :]))
    with pytest.raises(RulesError, match="no weights for one-gpu"):
        load_kind_model(WORKING, NAMES, fingerprint(SHAPES), path)


def test_judging_needs_no_scikit_learn() -> None:
    code = "import sys, skuwise.advisor.pipeline; from skuwise.advisor.advise import load_rulebook; "
    code += (
        "load_rulebook(None, None, 0.0); print(sorted(set(sys.modules) & {'sklearn', 'scipy', 'joblib', 'pickle5'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _made_up(count: int = 160) -> list[trainer.Example]:
    """Workloads of two kinds that differ in rhythm and memory, in eight fleets."""
    rng = np.random.default_rng(5)
    out: list[trainer.Example] = []
    for n in range(count):
        trains = n % 2 == 0
        features = {
            **PROBE, "idle_share": 0.0, "nodes": 1.0, "ended": 0.0, "period_strength": 0.8,
            "period_share": rng.uniform(0.6, 1.0) if trains else rng.uniform(0.0, 0.2),
            "mem_flat": float(rng.random() < (0.1 if trains else 0.9)),
            "swing": float(rng.uniform(0, 0.1) if trains else rng.uniform(0.05, 0.5)),
        }  # fmt: skip
        kind = "training" if trains else "online-inference"
        out.append(trainer.Example(f"made/{n % 8}", "1 s", kind, "compute", features))
    return out


def test_the_same_examples_give_the_same_file() -> None:
    examples = _made_up()
    first, second = (trainer.train(examples) for _ in range(2))
    documents = ["\n".join(trainer.document(*made, "x")) for made in (first, second)]
    assert documents[0] == documents[1]
    assert float(first[1]["held_out_by_seed"].split()[1].rstrip(",")) > 0.9  # some of it lacks what tells it


def test_a_file_just_made_can_be_read(tmp_path: Path) -> None:
    fitted, noted = trainer.train(_made_up())
    path = tmp_path / FILE
    path.write_text("\n".join(trainer.document(fitted, noted, "x")))
    model = load_kind_model(WORKING, NAMES, fingerprint(SHAPES), path)
    assert model.weight("periodic", "training") > 0.5 > model.weight("periodic", "online-inference")


@pytest.mark.slow
def test_shuffled_labels_fall_to_chance() -> None:
    table = trainer.table_of(_made_up())
    lost = trainer.shuffled(table, 3)
    right = np.mean(trainer.held_out(table, trainer.by_seed(table)).argmax(axis=1) == table.y)
    guessed = np.mean(trainer.held_out(lost, trainer.by_seed(lost)).argmax(axis=1) == lost.y)
    assert right == 1.0
    assert guessed < 0.62  # two kinds: half, and 160 rows leave a twelfth to luck


def test_what_leaks_the_answer_stops_the_training() -> None:
    with pytest.raises(ValueError, match="something leaks the answer"):
        trainer.train(_made_up(), chance_times=0.1)


@pytest.mark.slow
def test_simulated_fleets_teach_and_shuffled_ones_do_not() -> None:
    window = ((48.0, 0.0),)
    fleets = [trainer.Fleet("assorted", seed, 2, window) for seed in (700, 701, 702, 703)]
    examples = trainer.kind_examples.gather(fleets, 2, lambda _: None)
    table = trainer.table_of([e for e in examples if e.view == "1 s"])
    lost = trainer.shuffled(table, 1)
    right = np.mean(trainer.held_out(table, trainer.by_seed(table)).argmax(axis=1) == table.y)
    guessed = np.mean(trainer.held_out(lost, trainer.by_seed(lost)).argmax(axis=1) == lost.y)
    assert right > 0.6
    assert guessed < right - 0.2


def test_levels_are_shares_and_what_is_missing_speaks_for_nothing() -> None:
    for scale in (0.0, 0.3, 1.0, 3.0, 1e9):
        found = levels({name: value * scale for name, value in PROBE.items()})
        assert all(0.0 <= level <= 1.0 for level in found.values())
    assert set(levels({"gpus": 2.0}).values()) == {0.0}
    assert levels({"gpus": 2.0}) == levels({"gpus": 2.0, "power_watts": 900.0, "clock_ratio": 1.0})


def test_second_fine_shapes_are_silent_where_samples_are_coarse() -> None:
    fine = levels({**PROBE, "period_share": 1.0, "sm_active_cv": 0.6})
    coarse = levels({**PROBE, "period_share": 1.0, "sm_active_cv": 0.6, "resolution_seconds": 60.0})
    second_fine = ("periodic", "uneven-seconds", "pauses", "links-with-compute")
    assert all(fine[name] > 0 for name in second_fine)
    assert all(coarse[name] == 0 for name in second_fine)


@pytest.mark.parametrize("shape", SHAPES, ids=NAMES)
def test_a_shape_whose_number_is_missing_is_said_without_it_or_not_at_all(shape) -> None:
    for missing in PROBE:
        rest = {name: value for name, value in PROBE.items() if name != missing}
        assert shape.level(rest) == 0.0 or "{" not in shape.told(rest).text


@pytest.mark.parametrize("shape", SHAPES, ids=NAMES)
def test_every_shape_can_be_said_in_words(shape) -> None:
    sentence = shape.told(PROBE).text
    assert sentence.endswith(".")
    assert "{" not in sentence
    assert "nan" not in sentence
