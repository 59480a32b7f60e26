"""`skuwise demo` as a new user runs it: what it prints runs when it is pasted, and so do the commands of its mail."""

import email
import os
import re
import resource
import runpy
import subprocess
import sys
from email.policy import default
from html import unescape
from pathlib import Path

import pytest
from skuwise.advisor.demo import simulate
from skuwise.tests.support.pasted_commands import commands_in, paste

PLAIN = {"LC_ALL": "C", "LANG": "C", "NO_COLOR": "1", "PYTHONUTF8": "0"}


def demo(*arguments: str, folder: Path, file_bytes: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run the demo in `folder`; no file may grow beyond `file_bytes`."""

    def limited() -> None:
        if file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    return subprocess.run(
        [sys.executable, "-m", "skuwise", "demo", *arguments], cwd=folder, env={**os.environ, **PLAIN},
        capture_output=True, text=True, check=False, timeout=600, preexec_fn=limited,
    )  # fmt: skip


def pasteable(text: str) -> list[str]:
    """The commands of a text, whatever starts the program, their continuation lines joined."""
    joined = re.sub(r"\\\r?\n", " ", text)
    return [line.strip() for line in joined.splitlines() if " explain " in line or " advise " in line]


def test_the_demo_prints_commands_that_run_and_writes_a_mail_that_compares_two_weeks(tmp_path: Path) -> None:
    done = demo("--dir", "out of the box", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr and max(map(len, done.stdout.splitlines())) <= 200
    assert [line[:3] for line in done.stderr.splitlines()] == ["1/3", "2/3", "3/3"]
    folder = tmp_path / "out of the box"
    assert {"advice.html", "fleet.db", "mail"} <= {path.name for path in folder.iterdir()}
    mail = email.message_from_bytes((folder / "mail" / "fleet.eml").read_bytes(), policy=default)
    body = mail.get_body(("plain",))
    assert body is not None
    text = body.get_content()
    assert "nothing to compare with" not in text and "Changes since last week" in text
    printed, mailed = pasteable(done.stdout), pasteable(text)
    assert len(printed) == 2 and len(mailed) >= 2
    for command in (*printed, mailed[0]):
        again = paste(command, tmp_path)
        assert again.returncode == 0, (command, again.stderr)
        if " explain " in command and command in printed:
            assert "no InfiniBand" in " ".join(again.stdout.split())  # the founding case: a service on a silent fabric


def test_the_picture_of_the_readme_is_what_the_demo_prints() -> None:
    root = Path(__file__).parents[4]
    assert "](docs/demo.svg)" in (root / "README.md").read_text()
    of_line: dict[float, str] = {}
    drawing = (root / "docs/demo.svg").read_text()
    for y, text in re.findall(r'<text class="skuwise-r\d+"[^>]* y="([^"]*)"[^>]*>([^<]*)<', drawing):
        of_line[float(y)] = of_line.get(float(y), "") + unescape(text).replace("\xa0", " ")
    drawn = [of_line[y].strip() for y in sorted(of_line) if of_line[y].strip()]
    tool = runpy.run_path(str(root / "docs/tools/picture.py"))
    assert drawn == [line.strip() for line in tool["picture_lines"]() if line.strip()]


def test_a_full_disk_ends_the_demo_with_a_sentence(tmp_path: Path) -> None:
    done = demo("--dir", "demo", folder=tmp_path, file_bytes=400_000)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("skuwise")


def test_a_folder_that_cannot_be_made_or_that_holds_a_demo_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = demo("--dir", "file/demo", folder=tmp_path)
    assert refused.returncode == 2 and "--dir" in refused.stderr
    (tmp_path / "fleet.db").write_text("")
    twice = demo("--dir", ".", folder=tmp_path)
    assert twice.returncode == 2 and "already exists" in twice.stderr and "--dir" in twice.stderr


# Commands that are named where no source is known: they are to be run with one.
NAMES = ("skuwise advise", "skuwise agent")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its name and the file's are ones that a shell would take apart; rules of one's own lie beside."""
    place = tmp_path_factory.mktemp("pasted") / "fleet of 'a' site"
    place.mkdir()
    simulate("founding", place / "a fleet.db", days=3, until=1_789_999_200.0)
    (place / "rules").mkdir()
    return place


GIVEN = "--db 'a fleet.db' --rules rules --gpu-hour-usd H100-SXM5=2.5 --ledger 'my ledger.db'"


def ran(command: str, folder: Path, *statuses: int) -> subprocess.CompletedProcess[str]:
    done = paste(command, folder)
    assert done.returncode in (statuses or (0,)), f"{command}\n{done.stdout[-2000:]}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def printed(command: str, folder: Path, *statuses: int) -> list[str]:
    """The commands that a command prints, on stdout and stderr."""
    done = ran(command, folder, *statuses)
    return [words for words in (*commands_in(done.stdout), *commands_in(done.stderr)) if words not in NAMES]


@pytest.fixture(scope="module")
def advised(folder: Path) -> list[str]:
    return printed(f"skuwise advise {GIVEN}", folder)


def test_every_command_of_advise_runs(advised: list[str], folder: Path) -> None:
    assert len(advised) >= 2
    for command in advised:
        ran(command, folder)
    first = next(command for command in advised if command.startswith("skuwise explain "))
    for command in printed(first, folder):
        ran(command, folder)


@pytest.mark.parametrize(
    ("words", "statuses", "least"),
    [
        (f"explain {GIVEN} app-32", (2,), 8), (f"explain {GIVEN} app-32@serve-01", (2,), 2),
        ("ledger accept app-32 --ledger 'my ledger.db' --why 'it is so'", (2,), 2),
        ("doctor --db 'a fleet.db'", (0,), 0), ("ledger list --ledger 'my ledger.db'", (0,), 0),
        ("rules list", (0,), 0), ("skus show azure/Standard_ND96isr_H100_v5", (0,), 0),
        ("simulate founding --days 1 --db 'one more.db'", (0,), 1), ("advize", (2,), 0), ("nonsense", (2,), 0),
        ("advise --db 'a fleet.db' --formt json", (2,), 1), ("ledger show r-00000000 --ledger 'my ledger.db'", (2,), 1),
        ("ledger list --ledger none.db", (3,), 0), ("skus show H1000000", (2,), 0),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("advised")
def test_every_command_of_output_and_errors_runs(words: str, statuses: tuple[int], least: int, folder: Path) -> None:
    commands = printed(f"skuwise {words}", folder, *statuses)
    assert len(commands) >= least, commands
    for command in commands[:4]:
        # 3: nothing to work on is what a new machine has to say of itself.
        ran(command, folder, 0, 3)
