"""Work off the event loop: daemon threads that tell how they fare by messages, and can be called off.

Textual's own thread workers are joined when the program ends, so that quitting would wait for the reading of a fleet.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from textual.message import Message

from ...rules.base.errors import explained
from ...rules.base.sanitize import clean

Tell = Callable[[str], None]
Result = TypeVar("Result")


def settle() -> None:
    """Clear away what is garbage, and put what lives on out of the garbage collector's sight.

    Looking through all of a fleet takes it a tenth of a second and more, at whatever key happens to be pressed then.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


class Cancelled(Exception):  # noqa: N818 - nothing went wrong
    """Raised within a job at the next step after it was called off."""


@dataclass
class JobMessage(Message):
    """Something about job number `number` of a slot."""

    slot: str
    number: int


@dataclass
class JobTold(JobMessage):
    """What a job is doing, in words."""

    text: str

    def can_replace(self, message: Message) -> bool:
        """Only the newest narration matters."""
        return isinstance(message, JobTold) and message.slot == self.slot


@dataclass
class JobDone(JobMessage):
    """`show`: hands over what came of it, on the event loop."""

    show: Callable[[], None]


@dataclass
class JobFailed(JobMessage):
    """`error`: one sentence with its remedy, plain text."""

    error: str


def _nothing(result: object) -> None:
    """Nobody waits for it."""


class Jobs:
    """One job a slot: the newest wins, and what an older one still says is not current any more."""

    def __init__(self, post: Callable[[Message], object]) -> None:
        self._post = post
        self._numbers: dict[str, int] = {}

    def start(self, slot: str, work: Callable[[Tell], Result], show: Callable[[Result], None] = _nothing) -> None:
        """Run `work` on a thread of its own. It is given a function that tells progress and raises `Cancelled`; `show`
        is for its result."""
        self.cancel(slot)
        number = self._numbers[slot]
        threading.Thread(target=self._run, args=(slot, number, work, show), name=f"skuwise {slot}", daemon=True).start()

    def cancel(self, slot: str) -> None:
        """Let nothing of what runs in a slot arrive any more. It stops at its next step."""
        self._numbers[slot] = self._numbers.get(slot, 0) + 1

    def current(self, message: JobMessage) -> bool:
        return self._numbers.get(message.slot) == message.number

    def _run(self, slot: str, number: int, work: Callable[[Tell], Result], show: Callable[[Result], None]) -> None:
        def tell(text: str) -> None:
            if self._numbers.get(slot) != number:
                raise Cancelled
            self._send(JobTold(slot, number, text))

        try:
            self._send(JobDone(slot, number, partial(show, work(tell))))
        except Cancelled:
            pass
        except Exception as error:  # the screen stays, and says what happened
            told = explained(error) or f"unexpected {type(error).__name__}: {error}"
            self._send(JobFailed(slot, number, clean(told)))

    def _send(self, message: Message) -> None:
        with suppress(RuntimeError):  # the program has ended meanwhile
            self._post(message)
