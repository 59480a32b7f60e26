"""Any sequence of passes: hours never shrink, each incident is opened once, and what is unknown never ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.incidents.transitions import FINAL
from skuwise.tests.support.incident_builders import HOUR, MINUTE, YEAR, Watch

NAMES = ("a", "b")
# What a pass makes of a subject: found, judged and not found, not judged, its node silent.
STANDINGS = ("found", "found", "clear", "unknown", "silent")


@dataclass(frozen=True)
class Look:
    """One pass: after `seconds`, with the watcher's clock moved by `jump` before it. `decided`: by a person."""

    seconds: float
    standing: tuple[str, ...]
    jump: float = 0.0
    decided: str = ""


SPANS = st.sampled_from([MINUTE, 5 * MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR])
LOOKS = st.builds(
    Look, SPANS, st.tuples(*(st.sampled_from(STANDINGS) for _ in NAMES)),
    st.sampled_from([0.0] * 8 + [YEAR, -YEAR, HOUR, -HOUR]), st.sampled_from([""] * 8 + ["acknowledge", "snooze"]),
)  # fmt: skip


def looked(watch: Watch, look: Look, begun: dict[str, float]) -> None:
    watch.live(look.seconds)
    watch.now += look.jump
    told = dict(zip(NAMES, look.standing, strict=True))
    for name, standing in told.items():
        if standing == "clear":
            begun.pop(name, None)
        elif standing == "found":
            begun.setdefault(name, watch.data - HOUR)
    watch.take(
        [watch.idle(begun[name], name, nodes=(name,)) for name, standing in told.items() if standing == "found"],
        unknown=[f"workload:{name}" for name, standing in told.items() if standing == "unknown"],
        live=[name for name, standing in told.items() if standing != "silent"],
    )  # fmt: skip
    for one in list(watch.incidents.values()):
        if look.decided == "acknowledge" and one.resolved_at is None:
            watch.incidents[one.id] = replace(one, state="acknowledged", acknowledged_at=watch.now)
        elif look.decided == "snooze" and one.resolved_at is None:
            watch.incidents[one.id] = replace(one, snoozed_until=watch.now + 3 * HOUR)


@given(st.lists(LOOKS, max_size=40))
def test_no_sequence_of_passes_loses_shrinks_or_repeats_anything(looks: list[Look]) -> None:
    watch, begun = Watch(view=6 * HOUR), {}
    for look in looks:
        before, told = dict(watch.incidents), len(watch.events)
        looked(watch, look, begun)
        for id_, one in before.items():
            after = watch.incidents[id_]
            assert after.gpu_hours >= one.gpu_hours and (after.cost_usd or 0.0) >= (one.cost_usd or 0.0)
            assert after.since <= one.since and after.opened_at == one.opened_at
            name = one.sighting.subject.name
            if look.standing[NAMES.index(name)] in ("unknown", "silent") and one.resolved_at is None:
                assert after.resolved_at is None and after.gpu_hours == one.gpu_hours
        going_on = Counter(one.sighting.subject.name for one in watch.incidents.values() if one.resolved_at is None)
        assert max(going_on.values(), default=0) <= 1
        assert all(going_on[name] for name, what in zip(NAMES, look.standing, strict=True) if what == "found")
        # At most one of each incident in a pass.
        assert max(Counter(one.incident_id for one in watch.events[told:]).values(), default=0) <= 1
    keys = Counter((one.incident_id, one.number) for one in watch.events)
    assert max(keys.values(), default=0) <= 1
    assert {id_ for id_, number in keys if number == 0} == set(watch.incidents)
    for one in watch.events:
        assert {"opened": one.number == 0, "reminded": one.number > 0, "resolved": one.number in (-1, FINAL)}[one.kind]
