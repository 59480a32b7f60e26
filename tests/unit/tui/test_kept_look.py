"""What a run saw of a source, kept for the next one: exactly it, or nothing."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.tests.support.fleet_on_screen import fleet
from skuwise.tui.data.kept_look import KeptLooks, basis_of
from skuwise.tui.state import WINDOWS, Loaded, Look


def bare(look: Look) -> Look:
    """A look without the telemetry behind it."""
    return Look(look.window, look.advice, look.shown, look.health, look.at)


def test_what_was_kept_comes_back_as_it_was(tmp_path: Path) -> None:
    loaded, looks = fleet(), KeptLooks(tmp_path / "looks", "a")
    assert looks.get(loaded.window) is None
    looks.put(loaded)
    back = looks.get(loaded.window)
    assert back == bare(loaded) and back is not None
    assert not isinstance(back, Loaded)
    assert back.shown is back.advice  # one window: nothing says that another one was judged
    # What the contract's JSON has not is there, too.
    first = max(loaded.advice.workloads, key=lambda w: len(w.features))
    kept = next(w for w in back.advice.workloads if w.id == first.id)
    assert first.features and kept.features == first.features and kept.framework == first.framework
    assert back.advice.standings == loaded.advice.standings != ()


def test_a_window_that_is_not_the_findings_keeps_both(tmp_path: Path) -> None:
    loaded, looks = fleet(), KeptLooks(tmp_path, "a")
    shown = replace(loaded.advice, workloads=loaded.advice.workloads[:1])
    week = replace(loaded, window=WINDOWS[2], shown=shown)
    looks.put(week)
    back = looks.get(WINDOWS[2])
    assert back == bare(week) and back is not None and back.shown is not back.advice
    assert looks.get(WINDOWS[-1]) is None


def test_another_source_or_other_options_are_another_look(tmp_path: Path) -> None:
    options = (("source", None, Path("prices.yaml")), ("source", Path("prices.yaml"), None), ("other", None, None))
    bases = [basis_of(*one) for one in options]
    assert len(set(bases)) == len(bases)
    KeptLooks(tmp_path, bases[0]).put(fleet())
    assert [KeptLooks(tmp_path, basis).get(fleet().window) is not None for basis in bases] == [True, False, False]


def test_what_is_too_large_is_not_kept(tmp_path: Path) -> None:
    KeptLooks(tmp_path, "a", most_bytes=1000).put(fleet())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", "{}", '{"at": NaN}', "[" * 100_000, '{"at": 1, "advice": {}, "shown": null, "health": 2}'],
)
def test_a_whole_file_that_holds_no_look_is_none(tmp_path: Path, content: str) -> None:
    """As it would be if somebody with the owner's rights wrote it, digest and all."""
    looks = KeptLooks(tmp_path, "a")
    looks.put(fleet())
    (file,) = tmp_path.iterdir()
    form = file.read_bytes().partition(b"\n")[0] + b"\n"
    file.write_bytes(form + hashlib.sha256(content.encode()).digest() + content.encode())
    assert looks.get(fleet().window) is None


def test_a_look_of_another_version_is_none(tmp_path: Path) -> None:
    looks = KeptLooks(tmp_path, "a")
    looks.put(fleet())
    (file,) = tmp_path.iterdir()
    form, _, rest = file.read_bytes().partition(b"\n")
    file.write_bytes(form + b"9\n" + rest)
    assert looks.get(fleet().window) is None
