# pyright: reportOptionalMemberAccess=false
"""``skuwise ledger accept``, ``reopen`` and ``skuwise patch`` as they are typed: from a decision to its patch."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from skuwise.__main__ import main
from skuwise.advisor.patches.build import next_step
from skuwise.advisor.recommend.progress import WorkloadAddress
from skuwise.advisor.state.fleets import state_files
from skuwise.tests.support.ledger_builders import decide, keep, kept
from skuwise.tests.support.patch_cases import ID, NOW, SERVICE, accepted
from skuwise.tests.support.patch_samples import DEPLOYMENT, sized

MANIFEST = sized(DEPLOYMENT, 2, 8)
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "chat.yaml").write_text(MANIFEST)
    return tmp_path


def patch(place: Path, *words: str) -> int:
    return main(["patch", ID[:6], "--state", str(place / "state.db"), *words])


def test_a_patch_is_printed_and_written_once(place: Path, capsys: Capture) -> None:
    keep(place / "state.db", accepted("move-sku"))
    given = ["--for", "kubernetes", "--manifest", str(place / "chat.yaml")]
    assert patch(place, *given) == 0
    printed = capsys.readouterr().out
    assert f"ledger show {ID}" in printed and "by ann" in printed and "What was measured." in printed
    assert patch(place, *given, "--output", str(place / "out")) == 0
    written = {path.name: path.read_text() for path in (place / "out").iterdir()}
    assert set(written) == {"patch-deployment-chat.yaml", "undo-deployment-chat.yaml"}
    assert written["patch-deployment-chat.yaml"] == printed
    assert "nothing was applied" in capsys.readouterr().err
    assert patch(place, *given, "--output", str(place / "out")) == 2
    assert "File exists" in capsys.readouterr().err
    assert patch(place, *given, "--undo") == 0
    assert capsys.readouterr().out == written["undo-deployment-chat.yaml"]


@pytest.mark.parametrize(
    ("act", "words", "status", "says"),
    [
        ("proposed", [], 2, "ledger accept"), ("dismissed", [], 2, "is dismissed, not accepted"),
        ("done", [], 2, "--undo"), ("done", ["--undo"], 0, ""), ("regressed", [], 2, "ledger accept"),
        ("blocked", [], 2, "it is blocked"), ("accepted", ["--manifest", "none"], 2, "Cannot read none"),
    ],
)  # fmt: skip
def test_only_what_was_accepted_is_patched(
    act, words: list[str], status: int, says: str, place: Path, capsys: Capture
) -> None:
    entry = accepted("move-sku")
    if act == "blocked":
        entry = replace(entry, snapshot=None)
    keep(place / "state.db", entry if act != "proposed" else replace(entry, events=entry.events[:1]))
    # Long after it was last proposed nothing that was decided on expires.
    if act in ("dismissed", "done", "regressed"):
        decide(place / "state.db", ID, act, NOW + 60, by="skuwise", why="told")
    done = patch(place, "--for", "kubernetes", "--manifest", str(place / "chat.yaml"), *words)
    output = capsys.readouterr()
    assert done == status and says in output.err and bool(output.out) is (status == 0)
    assert output.err.count("\n") == (status != 0)


SLURM = WorkloadAddress("slurm", "train")


@pytest.mark.parametrize(
    ("action", "address", "says"),
    [
        ("move-sku", SERVICE, f"Next: skuwise patch {ID} --for kubernetes --db f.db"),
        ("rest-clocks", SLURM, f"Next: skuwise patch {ID} --for slurm --db f.db"),
        ("consolidate", None, f"Next: skuwise patch {ID} --for kubernetes --db f.db; on Slurm: scontrol update "
         f"NodeName=n2 State=DRAIN Reason={ID}"),
        ("lower-clock", SERVICE, "Next, by hand (no patch for it): What was\\x1b measured."),
        ("release", SLURM, "Next, by hand (no patch for it): What was\\x1b measured."),
        ("fix-first", WorkloadAddress("docker", "a"), "Next, by hand (no patch for it): What was\\x1b measured."),
    ],
)  # fmt: skip
def test_the_next_step_of_what_was_accepted(action: str, address: WorkloadAddress | None, says: str) -> None:
    entry = accepted(action, text="What was\x1b\nmeasured.", address=address)
    assert next_step(entry, "skuwise", "--db f.db") == says


@pytest.fixture
def advised(founding: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> tuple[Path, str]:
    """A database whose fleet has a ledger beside that of another fleet, and the id of the move that is proposed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    keep(tmp_path / "skuwise/other.db", accepted("move-sku", about="app-32"))
    assert main(["advise", "--db", str(founding), "--format", "csv", "--until", "2026-11-16T00:00:00Z"]) == 0
    assert main(["ledger", "list", "--db", str(founding)]) == 0
    listed = capsys.readouterr().out
    assert ID not in listed
    return founding, next(line.split()[0] for line in listed.splitlines() if " move-sku " in line)


def test_what_accept_prints_leads_to_the_patch_of_the_fleet_of_a_source(
    advised: tuple[Path, str], tmp_path: Path, capsys: Capture
) -> None:
    db, id_ = advised
    assert main(["ledger", "accept", id_, "--db", str(db)]) == 0
    step = capsys.readouterr().err.splitlines()[-1].removeprefix("Next: ")
    words = shlex.split(step)
    assert words[-6:] == ["patch", id_, "--for", "kubernetes", "--db", str(db)]
    assert main(words[words.index("patch") :]) == 2
    remedy = capsys.readouterr().err.partition("Run: ")[2].partition(" ; ")[0]
    words = shlex.split(remedy.replace("KIND", "Deployment"))
    assert words[-2:] == ["--kind", "Deployment"]
    assert main(words[words.index("patch") :]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["metadata"]["name"]
    (entry,) = [kept(path)[id_] for path in state_files(tmp_path / "skuwise") if id_ in kept(path)]
    address = entry.snapshot.address
    assert (address.namespace, address.replicas) == ("nlp", 4)
