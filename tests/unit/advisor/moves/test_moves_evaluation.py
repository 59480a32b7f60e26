"""The table of published pairs, the calibration made from it, and how far predictions of what was left out are off."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from skuwise.benchmarks.evaluation import decode, moves
from skuwise.benchmarks.fit import decode_pairs, move_model
from skuwise.benchmarks.fit import sku_pairs as pairs
from skuwise.rules.base.errors import UsageError
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.models.move_model import load_move_model, load_profiles

ROOT = Path(__file__).parents[4]
CATALOG = load_catalog()
PROFILES = load_profiles()
REFERENCE = CATALOG.gpus[PROFILES.reference]
LINE = {
    "model": "LLaMA3-70B 128/2048 TP8", "workload": "inference_decode", "precision": "fp8", "gpu_a": "H100-SXM-80GB",
    "gpu_b": "H200-SXM-141GB", "metric": "tokens/s", "value_a": "100", "value_b": "130", "source": "somebody",
}  # fmt: skip


def table(folder: Path, *lines: dict[str, str]) -> Path:
    file = folder / "pairs.csv"
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(dict.fromkeys(key for line in lines for key in line)))
        writer.writeheader()
        writer.writerows(lines)
    return file


@pytest.fixture(scope="module")
def runs():
    return decode_pairs.read_runs(decode_pairs.DECODE_TABLE, CATALOG)[0]


@pytest.fixture(scope="module")
def measured(runs):
    return move_model.measure(runs, PROFILES, REFERENCE)


@pytest.fixture(scope="module")
def seen(measured):
    found, _ = pairs.read_published(CATALOG)
    return move_model.look([pair for pair in found if pair.alike], PROFILES, REFERENCE, measured.factors)


def test_a_line_tells_what_its_model_and_its_columns_say(tmp_path):
    file = table(tmp_path, LINE, {**LINE, "params": "7e9", "batch": "8"}, {**LINE, "model": "GPT-J-6B ISL2048 bs1"})
    (first, second, third), refused = pairs.read_pairs(file, CATALOG)
    assert not refused
    assert (first.question.params, first.question.gpus) == (70e9, 8)
    assert first.question.tokens == (128, 2048)
    assert first.observed == pytest.approx(np.log(100 / 130))
    assert (second.question.params, second.question.batch) == (7e9, 8)
    assert (third.question.tokens, third.question.batch) == ((2048, 1), 1)


def test_what_cannot_be_used_is_counted_with_its_reason(tmp_path):
    odd = [{"gpu_b": "H999"}, {"workload": "rendering"}, {"precision": "fp7"}, {"value_a": "0"}, {"value_b": ""}]
    found, refused = pairs.read_pairs(table(tmp_path, *({**LINE, **one} for one in odd)), CATALOG)
    assert not found
    assert sum(refused.values()) == len(odd)
    assert refused["unknown GPU H999"] == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [({"value_a": "fast"}, r"pairs.csv:2: value_a is 'fast'"), ({"value_a": "inf"}, "not finite")],
)
def test_a_table_with_nonsense_is_refused_by_line(tmp_path, change, told):
    with pytest.raises(UsageError, match=told):
        pairs.read_pairs(table(tmp_path, {**LINE, **change}), CATALOG)


def test_a_table_without_its_columns_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("model,gpu_a\nx,y\n")
    with pytest.raises(UsageError, match="has no column workload"):
        pairs.read_pairs(tmp_path / "t.csv", CATALOG)
    with pytest.raises(UsageError, match="cannot be read"):
        pairs.read_pairs(tmp_path / "none.csv", CATALOG)


def test_every_line_of_the_table_names_its_source_and_few_are_refused():
    with pairs.TABLE.open(newline="") as stream:
        assert all(line["source"] for line in csv.DictReader(stream))
    found, refused = pairs.read_pairs(pairs.TABLE, CATALOG)
    assert len(found) > 300
    assert set(refused) == {"unknown GPU GH200-120GB-doc-label"}


def test_the_calibration_that_ships_is_the_one_of_the_tables(seen, measured):
    made, shipped = move_model.calibrate(seen, measured, PROFILES), load_move_model()
    assert made.offsets == shipped.offsets
    assert made.decode == shipped.decode
    assert set(made.ranges) == set(shipped.ranges)
    assert {name: r.sigma for name, r in made.groups.items()} == {name: r.sigma for name, r in shipped.groups.items()}


@pytest.mark.parametrize("by", ["family", "source"])
def test_predictions_hold_on_what_was_left_out(seen, measured, by):
    told = moves.held_out(seen, measured, lambda pair: getattr(pair, by), PROFILES, REFERENCE)
    errors = [one.error for one in told]
    moved = [one for one in told if one.changes]
    assert len(told) == len(seen)
    assert np.median(errors) <= 0.15
    assert np.percentile(errors, 90) <= 0.35
    assert sum(one.same_direction for one in moved) >= 0.95 * len(moved)
    assert 0.75 <= sum(one.covered for one in told) / len(told) <= 0.90


def test_printed_peaks_are_worse(seen):
    given = [one.pair for one in seen]
    mine = np.median([t.error for t in moves.predict_pairs(given, load_move_model(), REFERENCE)])
    for rate in (moves.printed_flops, moves.printed_bandwidth):
        assert np.median([t.error for t in moves.printed(given, rate)]) > 2 * mine


def test_measured_serving_holds_on_families_left_out(seen, runs):
    def without(family):
        kept = move_model.measure([run for run in runs if run.family != family], PROFILES, REFERENCE)
        return move_model.calibrate(seen, kept, PROFILES)

    told, _ = decode.held_out_runs(runs, lambda run: run.family, without, CATALOG)
    errors = [one.error for one in told]
    moved = [one for one in told if one.changes]
    assert len(told) == len(runs) == 492
    assert np.median(errors) <= 0.12
    assert np.percentile(errors, 90) <= 0.30
    assert sum(one.same_direction for one in moved) >= 0.95 * len(moved)
    assert sum(one.covered for one in told) >= 0.76 * len(told)


def test_tables_of_measured_serving_tell_gpus_and_count_what_they_refuse(tmp_path):
    with decode_pairs.DECODE_TABLE.open(newline="") as stream:
        line = next(one for one in csv.DictReader(stream) if one["tp_size"] == "64.0")
    odd = [{"gpu_b": "H999"}, {"precision": "fp7"}, {"model": "Acme/Unsized"}, {"tpot_ms_a": "0"}, {"concurrency": ""}]
    file = table(tmp_path, line, *({**line, **one} for one in odd))
    (found,), refused = decode_pairs.read_runs(file, CATALOG)
    assert found.decode.question.gpus == 8  # the table says 64: 8 GPUs for tensors times 8 for experts
    assert sum(refused.values()) == len(odd)
    assert refused["unknown size of Acme/Unsized"] == 1
    with pytest.raises(UsageError, match="concurrency is 'many'"):
        decode_pairs.read_runs(table(tmp_path, {**line, "concurrency": "many"}), CATALOG)
    (tmp_path / "t.csv").write_text("model,gpu_a\nx,y\n")
    with pytest.raises(UsageError, match="has no column precision"):
        decode_pairs.read_runs(tmp_path / "t.csv", CATALOG)
    with pytest.raises(UsageError, match="cannot be read"):
        decode_pairs.read_runs(tmp_path / "none.csv", CATALOG)


def test_measured_serving_of_another_table_is_scored_as_shipped(tmp_path, capsys):
    with decode_pairs.DECODE_TABLE.open(newline="") as stream:
        lines = list(csv.DictReader(stream))[:5]
    decode.tell(table(tmp_path, *lines, {**lines[0], "gpu_a": "H999"}), wrong=True)
    out = capsys.readouterr().out
    assert "time of a token, as shipped" in out
    assert "refused 1 lines: unknown GPU H999" in out


def test_a_class_that_one_model_speaks_for_is_believed_by_half(seen):
    one = next(
        s
        for s in seen
        if s.kind == "training" and s.pair.a.name == "A100-SXM4-80GB" and s.group.endswith("across generations")
    )
    alone = move_model.fit_offsets([one])
    assert alone["training"]["ampere"] == pytest.approx(-one.error({}) / 2, abs=1e-3)


def test_a_group_without_data_keeps_its_prior_and_few_data_widen_it(seen, measured):
    bare = move_model.calibrate([s for s in seen if s.kind != "decode"], measured, PROFILES).groups
    assert bare["decode, across generations"].pairs == 0
    assert bare["decode, across generations"].sigma == move_model.PRIORS["decode, across generations"][0]


def test_the_section_prints_every_view(tmp_path, capsys):
    moves.tell(table(tmp_path, LINE, {**LINE, "gpu_a": "H999"}))
    out = capsys.readouterr().out
    assert "moves, as shipped" in out
    assert "ratio of printed FLOP/s" in out
    assert "refused 1 lines: unknown GPU H999" in out
