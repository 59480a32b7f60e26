"""Whose a ledger is: a fleet is recognized by what it shares with what was recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.core.advice_types import Fleet
from skuwise.advisor.core.simulated_ids import gpu_uuid
from skuwise.advisor.ledger.file.paths import ledger_of
from skuwise.advisor.ledger.file.store import Ledger
from skuwise.advisor.ledger.identity import KnownFleet, file_stem, is_same
from skuwise.advisor.telemetry.fleet_identity import fleet_of
from skuwise.tests.support.frame_builder import FrameBuilder

NOW = 1_790_000_000.0
DAY = 86400.0
EU = Fleet(
    "eu", False, (), frozenset({"eu"}), {f"GPU-{n}": f"n{n // 8}" for n in range(32)},
    frozenset({"n0", "n1", "n2", "n3"}), frozenset({"a.db"}), "", {}, NOW - 14 * DAY, NOW,
)  # fmt: skip
NAMELESS = replace(EU, clusters=frozenset(), name="n0")
US = replace(EU, clusters=frozenset({"us"}), members={f"GPU-us-{n}": "n0" for n in range(32)})


def known(fleet: Fleet) -> KnownFleet:
    return KnownFleet(
        fleet.name, fleet.simulated, fleet.match, fleet.clusters, fleet.members, fleet.server, fleet.labels, fleet.end
    )


@pytest.mark.parametrize(
    ("fleet", "recorded", "same"),
    [
        (EU, EU, True),
        (replace(EU, members={"GPU-new": "n9"}), EU, True),  # all nodes replaced, the cluster's name stays
        (EU, US, False),
        (replace(US, members={**US.members, "GPU-3": "n0"}), EU, False),  # one GPU moved from there
        (replace(EU, clusters=frozenset({"eu-1"})), EU, True),  # renamed
        (replace(NAMELESS, members={"GPU-3": "n0", "GPU-new": "n9"}), NAMELESS, True),
        (replace(NAMELESS, members={"GPU-new": "n0"}), NAMELESS, False),  # nodes of the same name
        (NAMELESS, EU, True),  # the same GPUs, through exporters that tell no cluster
        (replace(EU, simulated=True), EU, False),
        (replace(EU, simulated=True, members={"GPU-new": "n0"}), replace(EU, simulated=True), False),
        (replace(NAMELESS, members={"GPU-new": "n0"}, labels={"cluster": "x"}), NAMELESS, False),
    ],
)
def test_a_fleet_is_recognized_by_its_cluster_or_its_gpus(fleet: Fleet, recorded: Fleet, same: bool) -> None:
    assert is_same(fleet, known(recorded)) == same


def test_what_is_recorded_is_read_back_and_only_grows(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    hostile = replace(EU, name="\x1b[31m'; DROP TABLE fleets; --", match=('a="\udcff"',))
    ledger.begin(hostile)
    (told,) = ledger.fleets()
    assert told.members == EU.members and told.match == hostile.match and told.clusters == {"eu"}
    ledger.propose((), NOW, fleet=replace(hostile, members={"GPU-new": "n9"}, end=NOW - DAY))
    (told,) = ledger.fleets()
    assert told.members == {**EU.members, "GPU-new": "n9"} and told.last_seen == NOW


def test_of_several_that_share_gpus_the_one_with_most_is_taken(tmp_path: Path) -> None:
    home = tmp_path / "ledgers"
    few, many = (replace(NAMELESS, members={f"GPU-{n}": "n0" for n in range(start, 32)}) for start in (30, 8))
    for fleet in (few, many):
        path = home / f"{file_stem(fleet)}.db"
        Ledger(path).begin(fleet)
    assert ledger_of(home, NAMELESS) == (home / f"{file_stem(many)}.db", ())
    part = replace(NAMELESS, match=('rack="1"',))
    assert ledger_of(home, part)[0].name == f"{file_stem(part)}.db"  # what was asked for is part of who it is


def test_the_identity_of_a_frame_is_its_gpus_and_simulated_ones_are_known() -> None:
    def frame(uuid: str, **node: object):
        b = FrameBuilder()
        b.node("n1")
        b.nodes[0] |= node
        for row in b.gpus:
            row |= {"gpu_uuid": uuid, "gpu_index": 0.0}
        return b.frame()

    real = fleet_of(frame("GPU-x", cluster="eu"))
    assert (real.name, real.simulated, dict(real.members), real.clusters) == ("eu", False, {"GPU-x": "n1"}, {"eu"})
    assert fleet_of(frame(gpu_uuid("n1", 0), cluster="eu")).simulated
    assert not fleet_of(frame(gpu_uuid("n2", 0))).simulated
    one = frame("GPU-x")
    bare = replace(one, gpus=one.gpus.assign(gpu_uuid=np.nan), nodes=one.nodes.assign(machine_id="m-1", cluster=""))
    assert dict(fleet_of(bare).members) == {"machine m-1": "n1"}
    assert dict(fleet_of(replace(bare, nodes=bare.nodes.assign(machine_id=None))).members) == {"node n1": "n1"}
