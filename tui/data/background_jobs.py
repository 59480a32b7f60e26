"""Work off the event loop: daemon threads that post messages and can be cancelled.

Textual's own thread workers are joined when the program ends, so that quitting would last as long as the reading of a
fleet.
"""

import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeVar

from textual.message import Message

from ...rules.base.errors import explained
from ...rules.base.sanitize import clean

Tell = Callable[[str], None]
Result = TypeVar("Result")


def settle() -> None:
    """Collect garbage, then hide what lives on from the garbage collector.

    Scanning a whole fleet takes a tenth of a second and more, and would delay whichever key is pressed then.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


class Cancelled(Exception):  # noqa: N818 - nothing went wrong
    """Raised within a job at the next step after it was cancelled."""


@dataclass
class JobMessage(Message):
    """State of job `number` of a slot. `text`: the progress or the error; `show`: takes the result."""

    slot: str
    number: int
    state: Literal["running", "done", "failed"]
    text: str = ""
    show: Callable[[], None] = lambda: None

    def can_replace(self, message: Message) -> bool:
        """Of a slot only the newest message of the newest job counts; an older job may still speak after it."""
        return isinstance(message, JobMessage) and message.slot == self.slot and message.number >= self.number


class Jobs:
    """One job per slot: the newest counts, and messages of an older one are not current any more."""

    def __init__(self, post: Callable[[Message], object]) -> None:
        self._post = post
        self._numbers: dict[str, int] = {}

    def start(self, slot: str, work: Callable[[Tell], Result], show: Callable[[Result], None] = lambda _: None) -> None:
        """Run `work` on a thread with a function that reports progress or raises `Cancelled`."""
        self.cancel(slot)
        number = self._numbers[slot]
        threading.Thread(target=self._run, args=(slot, number, work, show), name=f"skuwise {slot}", daemon=True).start()

    def cancel(self, slot: str) -> None:
        """Ignore what runs in a slot. It stops at its next step."""
        self._numbers[slot] = self._numbers.get(slot, 0) + 1

    def current(self, message: JobMessage) -> bool:
        """Whether a message is of the newest job of its slot."""
        return self._numbers.get(message.slot) == message.number

    def _run(self, slot: str, number: int, work: Callable[[Tell], Result], show: Callable[[Result], None]) -> None:
        def tell(text: str) -> None:
            if self._numbers.get(slot) != number:
                raise Cancelled
            self._send(JobMessage(slot, number, "running", clean(text)))

        try:
            result = work(tell)
            self._send(JobMessage(slot, number, "done", show=lambda: show(result)))
        except Cancelled:
            pass
        except Exception as error:  # the screen stays and shows what happened
            text = explained(error) or f"unexpected {type(error).__name__}: {error}"
            self._send(JobMessage(slot, number, "failed", clean(text)))

    def _send(self, message: JobMessage) -> None:
        with suppress(RuntimeError):  # the program has ended meanwhile
            self._post(message)
