"""Draws the pictures of docs/report.md: mails of a simulated fleet, as Chromium shows them. Run by `make mails`."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from skuwise.advisor.advise import load_rulebook, read_and_reason
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.advisor.demo import simulate
from skuwise.advisor.notify.letters import Letter, report_letter
from skuwise.advisor.notify.report import split_by_team
from skuwise.advisor.show.pages.story import story_of
from skuwise.advisor.show.reader_links import ReaderCommands, ReaderLinks

UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z: the pictures are the same whenever they are drawn
WEEK = 7 * 86400.0
FOLDER = Path("docs/screens")
# CSS px of width and height; the fleet's mail on a desk, a team's on a phone.
DESK, PHONE = (800, 1280), (360, 1280)
LINKS = ReaderLinks(ReaderCommands("skuwise", "--db /srv/skuwise/fleet", host="gpu-admin"))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        simulate("small", folder / "fleet.db", days=14, seed=0, until=UNTIL)
        book = load_rulebook(None, None, UNTIL)
        now, before = (
            read_and_reason([folder / "fleet.db"], book, now=UNTIL, since=WEEK, until=end)[1].advice
            for end in (UNTIL, UNTIL - WEEK)
        )
        parts, parts_before = split_by_team(now, team_of), split_by_team(before, team_of)
        fleet = report_letter(story_of(now, before, teams=parts, teams_before=parts_before), LINKS)
        ads = report_letter(story_of(parts["ads"], parts_before["ads"], team="ads"), LINKS)
        for letter, which, size in ((fleet, "report", DESK), (ads, "report-phone", PHONE)):
            for scheme in ("light", "dark"):
                draw(letter, size, scheme, folder, FOLDER / f"{which}-{scheme}.png")


def team_of(workload: WorkloadVerdict) -> str | None:
    return workload.owner.namespace or workload.owner.account


def draw(letter: Letter, size: tuple[int, int], scheme: str, folder: Path, target: Path) -> None:
    page = folder / "mail.html"
    page.write_text(letter.html)
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
        f"--user-data-dir={folder / 'profile'}", f"--window-size={size[0]},{size[1]}",
        f"--screenshot={target.resolve()}",
        f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}", page.as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=300)  # noqa: S603 - our own page
    print(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
