"""The worker: what the loop wants comes first, and a job in steps goes on only in between."""

from __future__ import annotations

import threading
from collections.abc import Generator

from skuwise.agent.service.driver.worker import Worker


def test_steps_give_way_to_every_other_job() -> None:
    worker = Worker("test")
    done: list[str] = []
    first_step, go_on = threading.Event(), threading.Event()

    def steps() -> Generator[None, None, str]:
        for number in range(3):
            done.append(f"step {number}")
            first_step.set()
            assert go_on.wait(60)
            yield
        return "all"

    worker.start(lambda: None).wait(60)
    aside = worker.aside(steps())
    assert aside is not None and first_step.wait(60)
    calls = [worker.start(lambda n=n: done.append(f"job {n}")) for n in range(2)]
    go_on.set()
    assert aside.wait(60) and all(call.done for call in calls)
    assert done == ["step 0", "job 0", "job 1", "step 1", "step 2"]
    assert aside.result == "all"
    worker.stop()
