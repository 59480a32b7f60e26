"""``skuwise kinds fit`` as a site calls it: labels in, a small file out, and verdicts that say it was applied."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.labelled.judged import judged_folder
from skuwise.rules.models.kind_correction import CORRECTION_FILE

START, STEP, ROWS = 1_789_948_800, 300, 60


def _series(path: Path, *, serves: bool, seed: int) -> None:
    lines = ["ts,node,gpu_index,gpu_util,mem_used_bytes,mem_total_bytes"]
    for n in range(ROWS):
        util = (0.02 + 0.5 * ((n * 7 + seed) % 5 == 0)) if serves else 0.93 + 0.01 * ((n + seed) % 3)
        memory = 20_000_000_000 + (0 if serves else 300_000_000 * ((n + seed) % 4))
        lines.append(f"{START + n * STEP},n{seed},0,{util:.3f},{memory},42000000000")
    with gzip.open(path, "wt") as file:
        file.write("\n".join(lines) + "\n")


def _labelled(root: Path, count: int) -> Path:
    root.mkdir()
    rows = ["file,kind,part,group,source"]
    for n in range(count):
        serves = n % 2 == 0
        _series(root / f"s{n}.csv.gz", serves=serves, seed=n)
        rows.append(f"s{n}.csv.gz,{'online-inference' if serves else 'training'},fit,,made up")
    _series(root / "judge.csv.gz", serves=True, seed=99)
    rows.append("judge.csv.gz,online-inference,judge,,made up")
    (root / "labels.csv").write_text("\n".join(rows) + "\n")
    return root


def codes(found: tuple[CodedText, ...]) -> list[str]:
    return [one.code for one in found]


def test_a_correction_is_fitted_shown_checked_and_told_where_it_is_applied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, rules = _labelled(tmp_path / "labelled", 12), tmp_path / "rules"
    rules.mkdir()
    assert main(["kinds", "fit", str(folder), "--output", str(rules / CORRECTION_FILE)]) == 0
    told = capsys.readouterr().err
    assert "1 label is not used: kept for validation" in told
    assert "12 labeled workloads; leave-one-out accuracy" in told
    assert "no label of fine-tuning, batch-inference, interactive" in told

    assert main(["rules", "check", str(rules)]) == 0
    assert "labels of the kind correction: 12, valid" in capsys.readouterr().out
    assert main(["rules", "list", "--rules", str(rules)]) == 0
    assert "correction of workload kinds by the site, from 6 training, 6 online-inference:" in capsys.readouterr().out

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (judged,) = [
        one for one in judged_folder(folder, scratch, load_rulebook(rules, None, 0.0), leave="fit") if one.verdict
    ]
    assert judged.verdict is not None
    assert codes(judged.verdict.kind.evidence)[-1] == "kind-correction-applied"
    assert judged.group == "judge.csv.gz"


def test_too_few_labels_end_with_a_sentence_and_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / CORRECTION_FILE
    assert main(["kinds", "fit", str(_labelled(tmp_path / "few", 4)), "--output", str(out)]) == 3
    assert "4 are usable, a correction needs 10" in capsys.readouterr().err
    assert not out.exists()


def test_a_packed_series_that_is_broken_or_swells_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "labels.csv").write_text("file,kind\ns.csv.gz,training\n")
    (tmp_path / "s.csv.gz").write_bytes(b"no gzip at all")
    assert main(["kinds", "fit", str(tmp_path)]) == 2
    (tmp_path / "s.csv.gz").write_bytes(gzip.compress(b"a" * 1000)[:-9])
    assert main(["kinds", "fit", str(tmp_path)]) == 2
    with gzip.open(tmp_path / "s.csv.gz", "wb", compresslevel=1) as file:
        for _ in range(65):
            file.write(b"\n" * (1 << 20))
    assert main(["kinds", "fit", str(tmp_path)]) == 2
    broken, cut, swollen = [line for line in capsys.readouterr().err.splitlines() if line.startswith("skuwise:")]
    assert "s.csv.gz is not a valid gzip file" in broken
    assert "s.csv.gz is not a valid gzip file" in cut
    assert "is larger than 64 MiB" in swollen
