"""A card from a server: found in the window that was asked for, judged by its own life."""

from __future__ import annotations

from skuwise.advisor.cards.reading import CardReading
from skuwise.advisor.core.frame import Frame, Window
from skuwise.advisor.telemetry.source import PrometheusServer
from skuwise.tests.support.card_cases import HOUR, MINUTE, busy_then_idle
from skuwise.tests.support.frame_builder import START, TRAINING
from skuwise.tests.support.rulebooks import rulebook


class _Server(PrometheusServer):
    """Gives the rows of a window of a hand-built frame, and notes which was asked for."""

    def read(self, catalog: object, *, since: float, until: float | None, now: float) -> Frame:
        built = busy_then_idle(2, 0)
        built.hours, built.nodes[0]["last_seen"] = 20, START + 20 * HOUR
        built.use(TRAINING, uuid="GPU-n1-0", start=6, end=8, interval=MINUTE)
        built.work("w-next", [("n1", "GPU-n1-0")], start=6, end=8, name="train-7b", scheduler="slurm", job_id="4712")
        end = until or START + 20 * HOUR
        _Server.asked.append((since, until))
        return built.frame(Window(end - since, end))

    asked: list[tuple[float, float | None]] = []  # noqa: RUF012 - of the test alone


def test_a_job_of_a_server_is_read_twice_the_second_time_by_its_own_life() -> None:
    _Server.asked.clear()
    reading = CardReading(_Server("http://localhost"), rulebook(), START + 20 * HOUR, 20 * HOUR, None, print, str)
    card, others = reading.card("4712")
    assert _Server.asked == [(20 * HOUR, None), (2 * HOUR, START + 8 * HOUR)]
    assert (card.id, card.state, others) == ("w-next", "ended", ())
    assert card.compared is not None and card.compared.runs == 1
