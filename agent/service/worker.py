"""A thread for calls that may never return, and what waits for them.

What the loop wants is done in order. Beside it one job may run in steps (`Aside`): it goes on only while nothing else
waits, so that the loop waits for one step of it at most.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue


class Call:
    """One job of the worker. `result` and `error` hold once `done`."""

    __slots__ = ("_finished", "error", "function", "result")

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function
        self.result: object = None
        self.error: Exception | None = None
        self._finished = threading.Lock()  # the cheapest thing to wait on with a timeout
        self._finished.acquire()

    def run(self) -> None:
        try:
            self.result = self.function()
        except Exception as error:
            self.error = error
        self._finished.release()

    def wait(self, seconds: float) -> bool:
        """Whether it is done, at the latest after `seconds`."""
        if not self._finished.acquire(timeout=seconds):
            return False
        self._finished.release()
        return True

    @property
    def done(self) -> bool:
        return not self._finished.locked()


class Aside(Call):
    """A job in steps that gives way to every other. Whoever no longer waits for it drops it."""

    __slots__ = ("dropped",)

    def __init__(self, steps: Iterator[object]) -> None:
        super().__init__(lambda: next(steps))
        self.dropped = False

    def step(self) -> bool:
        """One step. Whether that was all: after the last, after an error, and where it was dropped."""
        try:
            if not self.dropped:
                self.function()
                return False
        except StopIteration as end:
            self.result = end.value
        except Exception as error:
            self.error = error
        self._finished.release()
        return True


class Worker:
    """A thread that does one job after the other. It dies with the process, stuck or not.

    Another thread may do a job itself in between (`here`): there are never two at once.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._turn = threading.Lock()  # whoever does a job holds it

    def start(self, function: Callable[[], object]) -> Call:
        call = Call(function)
        self.hand(call)
        return call

    def hand(self, call: Call) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(call)

    def here(self, call: Call) -> bool:
        """Do a job on the caller's thread, as long as this one does none. Whether that was so."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            call.run()
        finally:
            self._turn.release()
        return True

    def aside(self, steps: Iterator[object]) -> Aside | None:
        """Do `steps` while nothing else waits. From any thread; None where the worker's own is not running.

        There is one at a time: another one takes the place of what is left of the first.
        """
        if self._thread is None:
            return None
        call = Aside(steps)
        self._jobs.put(call)
        return call

    def stop(self) -> None:
        """Let the thread end after what it was given; what runs aside is left. Does not wait."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread = None

    def _work(self) -> None:
        aside: Aside | None = None
        while True:
            if aside is not None and self._jobs.empty():
                with self._turn:
                    ended = aside.step()
                if ended:
                    aside = None
                continue
            call = self._jobs.get()
            if call is None:
                return
            if isinstance(call, Aside):
                aside = call
            else:
                with self._turn:
                    call.run()
