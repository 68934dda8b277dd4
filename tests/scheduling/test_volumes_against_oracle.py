"""The plugins of volumes against the oracle, in the middle of histories; and the state against one made anew."""

from __future__ import annotations

import random

import pytest

from koord.model.scheduling.pods import Node
from koord.scheduling.plugins.volumebinding import VolumeBinding, binding
from koord.scheduling.plugins.volumes import NodeVolumeLimits, VolumeRestrictions, VolumeZone
from koord.scheduling.podinfo import ClaimKey, DiskKey, PodInfo
from koord.scheduling.state import ClusterState
from koord.scheduling.volumeusers import NO_LIMIT
from tests.scheduling.volumehistory import CLASSES, NAMES, VOLUMES, VolumeHistory
from tests.scheduling.volumeobjects import DRIVER, EBS, StorageObject, put

PLUGINS = (VolumeRestrictions(), NodeVolumeLimits(), VolumeBinding(), VolumeZone())
STEPS = 150


@pytest.mark.parametrize("seed", range(12))
def test_reasons_and_decisions(seed: int) -> None:
    history = VolumeHistory(seed)
    state = history.state
    for step in range(STEPS):
        waiting = history.step()
        masks = {plugin.name: plugin.filter(state, waiting) for plugin in PLUGINS}
        for name in history.oracle.nodes:
            row = state.table.row(name)
            assert row is not None
            expected = history.oracle.reasons(waiting, name)
            told = {}
            for plugin in PLUGINS:
                reasons = plugin.explain(state, waiting, row, state.table.exists).reasons
                mask = masks[plugin.name]
                assert bool(reasons) == (mask is not None and not mask[row]), (step, name, plugin.name)
                if reasons:
                    told[plugin.name] = [each.text for each in reasons]
            assert told == expected, (step, name)
            if not expected:
                bindings, provisions = history.oracle.decision(waiting, name)
                decision = binding(state, waiting, name)
                assert {key.name: to for key, to in decision.bindings} == bindings, (step, name)
                assert [key.name for key in decision.provisions] == provisions, (step, name)


def dump(state: ClusterState) -> dict[str, object]:
    """All that a state says of volumes, by the names of nodes."""
    volumes, users = state.volumes, state.volumes.users
    names = [state.table.name(row) for row in range(state.length)]
    claims = [ClaimKey("default", name) for name in (*NAMES, *[f"p{index}-e" for index in range(600)])]
    found: dict[str, object] = {}
    for key in claims:
        claim = volumes.claim(key)
        rows = {names[row]: count for row, count in users.rows_of(key).items()}
        attached = volumes.attached_volume(key)
        holders = (
            {} if attached is None else {names[row]: each for row, each in volumes.attached.rows_used(attached).items()}
        )
        kept = [] if claim is None else [each.name for each in volumes.kept_for(claim)]
        found[key.name] = claim and (claim, volumes.selected_node(claim)), rows, attached, holders, kept
    for name in VOLUMES:
        volume = volumes.volume(name)
        found[name] = volume and (volume.object, volume.capacity_bytes, volumes.claim_ref(volume))
    for each in CLASSES:
        found[each.metadata.name] = [one.name for one in volumes.free(each.metadata.name, 0)]
        found[each.metadata.name + " room"] = sorted(one.limit_bytes for one in volumes.capacities(each.metadata.name))
    for name in (DRIVER, EBS, "other"):
        for what, column, nothing in (
            ("limits", volumes.limits.of(name), NO_LIMIT),
            ("attached", volumes.attached.of(name), 0),
        ):
            found[f"{name} {what}"] = {
                names[row]: int(count)
                for row, count in enumerate([] if column is None else column)
                if names[row] and count != nothing
            }
    for disk in (DiskKey("gcePersistentDisk", ("a",)), DiskKey("rbd", ("a", "rbd", "i"))):
        for is_shared in (True, False):
            found[f"{disk} {is_shared}"] = sorted(names[row] for row in users.rows_of_disk(disk, is_shared))
    return found


def anew(history: VolumeHistory) -> ClusterState:
    """A state that is told of everything in another order."""
    state, oracle = ClusterState(), history.oracle
    objects: list[StorageObject | Node | PodInfo] = [
        *history.claims.values(),
        *history.volumes.values(),
        *CLASSES,
        *oracle.csi_nodes.values(),
        *oracle.drivers.values(),
        *oracle.capacities.values(),
        *oracle.attachments.values(),
        *oracle.nodes.values(),
        *[made for uid, (made, _) in oracle.placed.items() if uid not in history.decisions],
    ]
    random.Random(1).shuffle(objects)
    for each in objects:
        if isinstance(each, Node):
            state.put_node(each)
        elif isinstance(each, PodInfo):
            state.put_pod(each)
        else:
            put(state, [each])
    for uid, decision in history.decisions.items():
        state.assume(*oracle.placed[uid], decision)
    return state


@pytest.mark.parametrize("seed", range(20, 28))
def test_the_state_is_what_its_objects_make_of_it(seed: int) -> None:
    history = VolumeHistory(seed)
    for step in range(STEPS):
        history.step()
        if step % 10 == 9:
            assert dump(history.state) == dump(anew(history)), step


@pytest.mark.parametrize("seed", range(30, 36))
def test_what_is_taken_back_leaves_no_trace(seed: int) -> None:
    history, assumed = VolumeHistory(seed), 0
    state = history.state
    for _ in range(STEPS):
        history.step()
        waiting = [history.pod() for _ in range(3)]
        before = dump(state)
        with state.transaction() as transaction:
            for each in waiting:
                placement = history.framework.place(each)
                if placement is not None:
                    decision = binding(state, each, placement.node)
                    transaction.assume(each, placement.node, decision)
                    assumed += bool(decision.claims)
        assert dump(state) == before
        decisions = {uid: state.volumes.decision(uid) for uid in history.oracle.placed}
        with state.removed(history.oracle.placed):
            for uid, (each, name) in history.oracle.placed.items():
                state.assume(each, name)
                state.forget(uid)
        assert dump(state) == before
        assert {uid: state.volumes.decision(uid) for uid in history.oracle.placed} == decisions
    assert assumed > 10
