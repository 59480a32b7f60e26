"""Waits that end with a signal, whichever thread takes it and whenever it comes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from skuwise.agent.base.signal_pipe import SignalPipe, StopSignals

LONG = 60.0


@pytest.fixture
def stop() -> Iterator[StopSignals]:
    signals = StopSignals((signal.SIGUSR1,))
    yield signals
    signals.close()


def another_thread_takes(number: signal.Signals, after_seconds: float) -> threading.Thread:
    """A thread that is given a signal of the process, as the kernel may choose."""

    def take() -> None:
        time.sleep(after_seconds)
        signal.pthread_kill(threading.get_ident(), number)
        time.sleep(0.01)

    taking = threading.Thread(target=take)
    taking.start()
    return taking


def test_a_wait_ends_where_another_thread_takes_the_signal(stop: StopSignals) -> None:
    taking = another_thread_takes(signal.SIGUSR1, 0.1)
    began = time.monotonic()
    assert stop.wait(LONG)
    assert time.monotonic() - began < LONG / 2
    taking.join()


def test_a_signal_before_the_wait_ends_it_and_every_later_one(stop: StopSignals) -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
    assert stop.wait(LONG) and stop.wait(LONG) and stop.wait(0)


def test_what_is_closed_leaves_everything_as_it_was() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    outer = SignalPipe()
    inner = StopSignals((signal.SIGUSR1,))
    inner.close()
    assert signal.getsignal(signal.SIGUSR1) == before
    handler = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        assert outer.take() == b""
        os.kill(os.getpid(), signal.SIGUSR1)
        assert outer.take() == bytes([signal.SIGUSR1]) and outer.take() == b""
    finally:
        signal.signal(signal.SIGUSR1, handler)
    outer.close()
