"""The actuator tells shares of one weight apart where the kernel keeps shares, and follows the mapping of the node."""

from __future__ import annotations

from pathlib import Path

import pytest

from koord.host.weights import Weights
from tests.qosd.act.rig import SHARES, Rig, wants


@pytest.mark.parametrize(("made", "wanted"), [(2, 20), (20, 2), (1024, 1010), (262_144, 262_143)])
def test_v1_shares_of_one_weight_are_still_different_shares(rig: Rig, made: int, wanted: int) -> None:
    rig.put(SHARES, f"{made}\n")
    rig.say("hooks", (SHARES, wants(wanted)))
    rig.tick()
    assert (rig.holds(SHARES), rig.actuator.files.report.owned[SHARES].base) == (wanted, made)
    rig.crash()
    rig.tick()
    rig.say("hooks")
    rig.tick()
    assert (rig.holds(SHARES), rig.undo.entries, set(rig.journal.results())) == (made, (), {"done"})


def test_shares_are_written_again_when_the_nodes_mapping_is_learnt(tmp_path: Path) -> None:
    rig = Rig(tmp_path, version=2)
    rig.put(SHARES, "79\n")
    rig.say("hooks", (SHARES, wants(512)))
    rig.tick()
    assert rig.path(SHARES).read_text().strip() == "20"
    rig.writer.weights = Weights.QUADRATIC
    rig.undo.spell(Weights.QUADRATIC, 100_000)
    rig.actuator.files.respelled()
    for _ in range(3):
        rig.tick()
    assert rig.path(SHARES).read_text().strip() == "59"
    assert (rig.journal.results(), rig.actuator.files.report.contested) == (["done", "done"], {})
    rig.say("hooks")
    rig.tick()
    assert (rig.path(SHARES).read_text().strip(), rig.undo.entries) == ("79", ())


@pytest.mark.parametrize(("known", "weight"), [(None, "20"), (Weights.LINEAR, "20"), (Weights.QUADRATIC, "59")])
def test_either_mapping_will_do_until_the_nodes_is_known(tmp_path: Path, known: Weights | None, weight: str) -> None:
    rig = Rig(tmp_path, version=2)
    rig.writer.weights = known or rig.writer.weights
    rig.undo.spell(known, 100_000)
    rig.put(SHARES, "20\n")
    rig.say("hooks", (SHARES, wants(512)))
    for _ in range(2):
        rig.tick()
    assert rig.path(SHARES).read_text().strip() == weight
