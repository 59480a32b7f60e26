"""Differences of Kubernetes objects as patches: applied they give the other state, and back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.patches.objects import apply, difference, same

SCALARS = st.one_of(st.integers(-5, 5), st.booleans(), st.text(max_size=3))
KEYS = st.sampled_from(["a", "b", "spec", "annotations", "env", "containers", "x"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS.filter(lambda key: key not in ("env", "containers", "annotations")), VALUES, max_size=4)
NAMED = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abcd"), "value": SCALARS}),
    unique_by=lambda one: one["name"],
    max_size=4,
)


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_leads_there_and_its_undo_back(before, after) -> None:
    there, back = difference(before, after, strategic=False), difference(after, before, strategic=False)
    assert same(apply(before, there, strategic=False), after)
    assert same(apply(after, back, strategic=False), before)


@given(NAMED, NAMED)
def test_lists_of_named_things_are_merged_by_name(before, after) -> None:
    one, other = {"spec": {"env": before}}, {"spec": {"env": after}}
    patched = apply(one, difference(one, other, strategic=True), strategic=True)
    assert {v["name"]: v["value"] for v in patched["spec"]["env"]} == {v["name"]: v["value"] for v in after}


def test_annotations_that_were_not_there_lose_only_what_was_added() -> None:
    before, after = {"metadata": {}}, {"metadata": {"annotations": {"id": "r-1"}}}
    back = difference(after, before, strategic=True)
    assert back == {"metadata": {"annotations": {"id": None}}}
    later = {"metadata": {"annotations": {"id": "r-1", "others": "2"}}}
    assert apply(later, back, strategic=True) == {"metadata": {"annotations": {"others": "2"}}}
    assert same({"metadata": {"annotations": {}}}, before)
