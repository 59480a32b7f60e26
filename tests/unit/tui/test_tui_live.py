# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""A node while its agent writes: what a look gives, what it never does, and what becomes of it when the file goes."""

import hashlib
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from skuwise.advisor.telemetry.source import Databases
from skuwise.benchmarks.generators.first import simulate
from skuwise.tests.support.fleet_on_screen import NOW, HandLoader, fleet
from skuwise.tests.support.tui_session import KEY, Session, drive
from skuwise.tui.data.kept_look import SUFFIX, KeptLooks
from skuwise.tui.data.loaders import Loader
from skuwise.tui.state import FINDINGS_WINDOW, WINDOWS, Loaded, Look

UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z
EARLIER_SECONDS = 7200.0


def earlier() -> Look:
    """What a run two hours ago saw: one workload less."""
    loaded = fleet()
    advice = replace(loaded.advice, workloads=loaded.advice.workloads[:1])
    return Look(FINDINGS_WINDOW, advice, advice, loaded.health, NOW - EARLIER_SECONDS)


def test_what_an_earlier_run_saw_is_there_while_the_source_is_read_and_nothing_is_decided_on_it() -> None:
    gate = Event()
    loader = HandLoader(gate=gate, earlier=earlier())

    async def steps(s: Session) -> None:
        await s.shows("reading 14d of telemetry ... · read 2.0 h ago")
        for text in ("Recoverable  $7,177/month", "network fabric unused", "Drawn when the telemetry has been read."):
            await s.shows(text)
        assert s.app.state.loaded is None
        await s.press(KEY["workloads"])
        await s.shows("1 of 1 workloads")
        await s.press(KEY["recommendations"])
        await s.shows("Before and after")
        await s.press("a")
        await s.until(
            lambda: any("decide when the source" in notification.message for notification in s.app._notifications)
        )
        assert len(s.app.screen_stack) == 2
        await s.press(KEY["workloads"])
        gate.set()
        await s.ready()
        await s.shows("2 of 2 workloads")
        await s.shows("window 14d · read 1 min ago")
        await s.press(KEY["overview"])
        await s.shows("Waste over time, 14d, by finding")
        assert s.app.state.earlier is None

    drive(steps, loader, size=(160, 50))
    assert loader.decided == []


def test_the_next_run_over_a_database_begins_with_what_this_one_read(tmp_path: Path) -> None:
    database, looks = tmp_path / "fleet.db", tmp_path / "looks"
    simulate("founding", database, days=2, seed=3, until=UNTIL)

    def loader(prices: Path | None = None) -> Loader:
        return Loader(
            Databases((database,)), looks=looks, book=(None, prices, None), clock=lambda: UNTIL + 60
        )  # fmt: skip

    read = loader().load(FINDINGS_WINDOW, None, lambda _: None)
    assert loader().recall(FINDINGS_WINDOW) is None
    loader().keep(read)
    kept = loader().recall(FINDINGS_WINDOW)
    assert kept == Look(read.window, read.advice, read.shown, read.health, read.at)
    assert read.advice.findings and read.advice.fleet is not None
    assert loader(tmp_path / "prices.yaml").recall(FINDINGS_WINDOW) is None

    # Another fleet, or nothing, at the same place: only numbers of the file are shown.
    whole = database.read_bytes()
    for name in (database.name, f"{database.name}-wal", f"{database.name}-shm"):
        database.with_name(name).unlink(missing_ok=True)
    assert loader().recall(FINDINGS_WINDOW) is None
    simulate("training", database, days=2, seed=3, until=UNTIL)
    assert loader().recall(FINDINGS_WINDOW) is None
    database.write_bytes(whole[:5000])
    assert loader().recall(FINDINGS_WINDOW) is None
    database.write_bytes(whole)
    assert loader().recall(FINDINGS_WINDOW) == kept
    for file in looks.iterdir():
        file.unlink()

    async def steps(s: Session) -> None:
        await s.ready()
        await s.until(lambda: any(looks.glob(f"*{SUFFIX}")))

    drive(steps, loader(), clock=lambda: UNTIL + 120)


def bare(look: Look) -> Look:
    """A look without the telemetry behind it."""
    return Look(look.window, look.advice, look.shown, look.health, look.at)


def test_what_was_kept_comes_back_as_it_was(tmp_path: Path) -> None:
    loaded, looks = fleet(), KeptLooks(tmp_path / "looks", ("a",))
    assert looks.get(loaded.window) is None
    looks.put(loaded)
    back = looks.get(loaded.window)
    assert back == bare(loaded) and back is not None and not isinstance(back, Loaded)
    assert back.shown is back.advice  # one window: nothing says that another one was judged
    # What the contract's JSON has not is there, too.
    first = max(loaded.advice.workloads, key=lambda w: len(w.features))
    kept = next(w for w in back.advice.workloads if w.id == first.id)
    assert first.features and kept.features == first.features and kept.framework == first.framework
    assert back.advice.standings == loaded.advice.standings != ()


def test_a_window_that_is_not_the_findings_keeps_both(tmp_path: Path) -> None:
    loaded, looks = fleet(), KeptLooks(tmp_path, ("a",))
    shown = replace(loaded.advice, workloads=loaded.advice.workloads[:1])
    week = replace(loaded, window=WINDOWS[2], shown=shown)
    looks.put(week)
    back = looks.get(WINDOWS[2])
    assert back == bare(week) and back is not None and back.shown is not back.advice and looks.get(WINDOWS[-1]) is None


def test_another_source_or_other_options_are_another_look(tmp_path: Path) -> None:
    options = (("source", None, Path("prices.yaml")), ("source", Path("prices.yaml"), None), ("other", None, None))
    KeptLooks(tmp_path, ("a",), most_bytes=1000).put(fleet())
    assert list(tmp_path.iterdir()) == []  # what is too large is not kept
    KeptLooks(tmp_path, options[0]).put(fleet())
    assert [KeptLooks(tmp_path, basis).get(fleet().window) is not None for basis in options] == [True, False, False]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", "{}", '{"at": NaN}', "[" * 100_000, '{"at": 1, "advice": {}, "shown": null, "health": 2}'],
)
def test_a_whole_file_that_holds_no_look_is_none(tmp_path: Path, content: str) -> None:
    """As it would be if somebody with the owner's rights wrote it, digest and all."""
    looks = KeptLooks(tmp_path, ("a",))
    looks.put(fleet())
    (file,) = tmp_path.iterdir()
    form = file.read_bytes().partition(b"\n")[0] + b"\n"
    whole = file.read_bytes()
    file.write_bytes(form + hashlib.sha256(content.encode()).digest() + content.encode())
    assert looks.get(fleet().window) is None
    file.write_bytes(form + b"9\n" + whole.removeprefix(form))  # of another version
    assert looks.get(fleet().window) is None
