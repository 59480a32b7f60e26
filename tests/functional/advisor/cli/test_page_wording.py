"""Every page of an advice on simulated work keeps to rules/wording.yaml when its sentences are filled in."""

from __future__ import annotations

import pytest
from skuwise.advisor.advise import read_and_advise
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.simulate.simulator import simulate
from skuwise.advisor.views.document.advice_document import advice_document
from skuwise.advisor.views.document.advice_page import advice_page
from skuwise.advisor.views.document.explain_document import explain_sections
from skuwise.advisor.views.document.mail_document import mail_document
from skuwise.advisor.views.document.page_options import PageOptions
from skuwise.advisor.views.document.report_content import story_of
from skuwise.advisor.views.document.truncate import SCREEN
from skuwise.tests.support.rulebooks import rulebook
from skuwise.tests.support.wording.pages import wrong_in

UNTIL = 1_780_272_000.0  # 2026-06-01


@pytest.fixture(scope="module", params=["founding", "small"])
def advice(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Advice:
    path = tmp_path_factory.mktemp("wording") / "fleet.db"
    simulate(request.param, path, days=3, seed=5, until=UNTIL, minutes_seconds=3600)
    return read_and_advise([path], rulebook(), now=UNTIL)[1]


@pytest.mark.slow
def test_no_page_of_an_advice_has_a_phrase_or_a_sentence_to_rewrite(advice: Advice) -> None:
    story = story_of(advice, advice)
    pages = (
        advice_page(advice),
        advice_page(advice, PageOptions(whole=True, verbose=True)),
        advice_document(advice, SCREEN),
        mail_document(story, {}, SCREEN),
    )
    assert [one.text for one in wrong_in(*pages)] == []


@pytest.mark.slow
def test_no_explanation_has_a_phrase_or_a_sentence_to_rewrite(advice: Advice) -> None:
    every = (*advice.workloads, *advice.findings, *advice.recommendations)
    assert len(every) > 3
    assert [one.text for one in wrong_in(*(explain_sections(advice, one) for one in every))] == []
