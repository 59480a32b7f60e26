"""The process that reads databases, as a thread: commands that read them are called in process, and covered."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, BinaryIO

import pytest
from skuwise.advisor.telemetry.sqlite import reading_process
from skuwise.agent.store.reading import reading_child
from skuwise.agent.store.reading.packing import frame


class ReadingThread:
    """What `subprocess.Popen` gives, as far as it is used. Limits of the system are left out."""

    def __init__(self, *_: object, **__: object) -> None:
        asked, tells = os.pipe()
        takes, given = os.pipe()
        self.stdin, self.stdout = os.fdopen(tells, "wb", 0), os.fdopen(takes, "rb", 0)
        self._thread = threading.Thread(target=_serve, args=(os.fdopen(asked, "rb"), os.fdopen(given, "wb")))
        self._thread.daemon = True
        self._thread.start()

    def kill(self) -> None:
        """It ends when nobody asks any more."""

    def wait(self, seconds: float | None = None) -> int:
        self._thread.join(seconds)
        return 0


def _serve(asked: BinaryIO, given: BinaryIO) -> None:
    served = reading_child.Served()
    with asked, given:
        try:
            reading_child._answer(given, frame({"ready": os.getpid()}))
            for line in asked:
                task: dict[str, Any] = json.loads(line)
                try:
                    answer = list(getattr(served, task.pop("do"))(**task))
                except Exception as error:
                    answer = served.error(error)
                reading_child._answer(given, answer)
        except OSError:  # nobody waits for the answer
            pass
        finally:
            served.close()


@pytest.fixture
def reading_in_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Databases are read by a thread."""
    program = SimpleNamespace(**{**vars(subprocess), "Popen": ReadingThread})
    monkeypatch.setattr(reading_process, "subprocess", program)
    monkeypatch.setattr(reading_child, "_limit", lambda *_: None)
    yield
