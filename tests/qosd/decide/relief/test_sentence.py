"""What relief says of itself, and when it does nothing at all."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec import structs

from koord.model.qos import QoSClass
from qosd.decide.relief import relieve
from qosd.decide.reliefstate import ReliefState
from qosd.decide.shortage import ShortageClaim, Victims
from qosd.model.snapshot import EvictionState
from tests.qosd.decide.relief.threepods import EVICT, FREEZE, STOPPING, THROTTLE, at
from tests.qosd.decide.scenes import CPU, GATE, MEMORY, MIB, Run, lacks, under_way


@pytest.mark.parametrize(
    ("claims", "evictions", "sentence"),
    [
        ((), [], "no shortage"),
        ((lacks(7340032),), [], "memory: 7 MiB must be freed (memoryEvict: too much): reclaiming memory of 1 pod"),
        (
            (lacks(300 * MIB, MEMORY, THROTTLE),),
            [],
            "memory: 300 MiB must be freed (memoryEvict: too much): throttling 2 pods",
        ),
        (
            (lacks(400 * MIB, MEMORY, EVICT),),
            [under_way("a", STOPPING)],
            "memory: 400 MiB must be freed (memoryEvict: too much): evicting 1 pod, 1 eviction under way",
        ),
        (
            (lacks(1, MEMORY, EVICT), lacks(1, CPU, FREEZE, strategy="cpuEvict")),
            [],
            "memory: 1 byte must be freed (memoryEvict: too much): evicting 1 pod; "
            "cpu: 0.001 CPUs must be freed (cpuEvict: too much): what is on its way covers it",
        ),
        (
            (lacks(1, MEMORY, EVICT, victims=Victims(frozenset({QoSClass.LSE}), GATE)),),
            [],
            "memory: 1 byte must be freed (memoryEvict: too much): no pod is left to be chosen",
        ),
    ],
)
def test_sentence(claims: tuple[ShortageClaim, ...], evictions: list[EvictionState], sentence: str) -> None:
    assert Run().tick(at(1, evictions=evictions), *claims).sentence == sentence


def test_without_a_pod_list_in_force_nobody_is_chosen_and_all_stays_for_its_time() -> None:
    run, claim = Run(), lacks(MIB, MEMORY, THROTTLE, EVICT)
    assert not run.tick(at(1, is_known=False), claim).opinions
    stands = run.tick(at(2), claim).opinions
    for second in (8, 31.9):
        relief = run.tick(at(second, is_known=False))
        assert relief.opinions is stands and stands
        assert "nobody can tell which pods run" in relief.sentence
    assert not run.tick(at(32, is_known=False)).opinions


def test_before_anybody_knows_the_kernels_files_nobody_is_chosen() -> None:
    """A daemon that starts before kubelet has its cgroups would take every mild step for impossible, and evict."""
    run, claim, now = Run(), lacks(MIB, MEMORY), at(1)
    host = dataclasses.replace(now.policy.host, files=None)
    relief = run.tick(structs.replace(now, policy=dataclasses.replace(now.policy, host=host)), claim)
    assert (relief.opinions, relief.one_shots, relief.evictions) == ({}, (), ())
    assert relief.sentence.startswith("nobody can tell what this kernel can do")
    assert run.tick(at(2), claim).one_shots


def test_nothing_costs_nothing() -> None:
    first, state = relieve((), at(1), ReliefState())
    second, again = relieve((), at(2), state)
    assert first is second
    assert state is again and state.is_empty
