"""The outbox: asked in every way, and a mail of it sent."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..sqlite import by_sqlite, packed
from ..target import BrokenPromiseError, Prepared, Seed, Target

NOW = 1_790_000_000.0


def _prepare(folder: Path) -> Prepared:
    from skuwise.advisor.mail.outbox import DamagedParcelError, Outbox, Parcel, Reply
    from skuwise.agent.model import Instant

    begun, later = Instant(NOW, 100.0), Instant(NOW + 3600, 3700.0)

    def parcel(team: str, *to: str) -> Parcel:
        return Parcel(
            "2026-09-21", team, "mail", f"<{team}@example.org>", f"Report of {team}", b"Subject: x\r\n\r\ny", to
        )

    path = folder / "outbox.db"
    honest = Outbox(path)
    honest.queue(parcel("a", "ann@example.org", "bob@example.org"), NOW)
    honest.queue(parcel("b", "cat@example.org"), NOW)
    honest.queue(parcel("", "admin@example.org"), NOW)
    honest.begin(1, ["ann@example.org", "bob@example.org"], begun)
    honest.end(1, {"ann@example.org": Reply("accepted", "250"), "bob@example.org": Reply("later", "451 wait")}, begun)
    honest.begin(2, ["cat@example.org"], begun)
    honest.note_queued("2026-09-21", "d", NOW)
    seeds = [Seed("outbox", packed(str(path)))]
    place = folder / "own"

    def read(_: str, data: bytes) -> object:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(mode=0o700)
        own = place / "outbox.db"
        own.write_bytes(data)
        own.chmod(0o600)
        outbox = Outbox(own)
        with outbox.sending():
            outbox.is_queued("2026-09-21", "d")
            outbox.known("2026-09-21")
            waiting = outbox.waiting()
            for number in outbox.due(later, None)[:4]:
                try:
                    one = outbox.load(number, later)
                except DamagedParcelError as error:
                    outbox.give_up(number, str(error), later)
                    continue
                _check(one)
                outbox.begin(number, one.recipients, later)
                replies = {
                    to: Reply("later" if n else "accepted", "250 \x1b[2J") for n, to in enumerate(one.recipients)
                }
                outbox.end(number, replies, later)
            outbox.let_go()
            outbox.soonest(later)
            outbox.queue(parcel("c", "dan@example.org"), NOW + 3600)
            outbox.note_queued("2026-09-28", "e", NOW + 3600)
        return waiting

    return Prepared(seeds, read, by_sqlite())


def _check(parcel: object) -> None:
    for name in ("week", "team", "channel", "message_id", "subject"):
        if not isinstance(getattr(parcel, name), str):
            raise BrokenPromiseError(f"Parcel.{name} is no text")
    recipients = parcel.recipients  # type: ignore[attr-defined]
    if not all(isinstance(to, str) for to in recipients) or not isinstance(parcel.content, bytes):  # type: ignore[attr-defined]
        raise BrokenPromiseError("a recipient is no text, or a content no bytes")


OUTBOX = Target("outbox", "the outbox of reports, read and sent from (advisor/mail)", _prepare)
