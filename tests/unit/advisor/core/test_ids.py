"""Ids: the same from run to run, and short forms that tell things apart."""

from __future__ import annotations

from skuwise.advisor.core.ids import short_id, short_ids, stable_id


def test_the_same_parts_give_the_same_id_and_none_is_empty_text() -> None:
    assert stable_id("r", "a", None) == stable_id("r", "a", "") != stable_id("r", "a", "b")
    assert len(stable_id("r", "a")) == len("r-") + 12


def test_a_short_id_is_the_beginning_of_the_whole() -> None:
    assert short_id("w-7d371f986d36691d") == "w-7d371f98"
    assert short_id("7d371f986d36691d") == "7d371f98"
    assert short_id("w-7d") == "w-7d"
    assert short_id("") == ""


def test_ids_that_begin_alike_keep_more_digits() -> None:
    near, other, far = "w-7d371f986d36691d", "w-7d371f986dff691d", "w-1111111111111111"
    found = short_ids([near, other, far, near])
    assert found == {near: "w-7d371f986d36", other: "w-7d371f986dff", far: "w-11111111"}
    assert all(full.startswith(short) for full, short in found.items())


def test_one_id_that_is_the_beginning_of_another_stays_whole() -> None:
    assert short_ids(["w-7d371f98", "w-7d371f98aa"]) == {"w-7d371f98": "w-7d371f98", "w-7d371f98aa": "w-7d371f98aa"}
