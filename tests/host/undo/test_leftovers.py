"""The record says whether anything is left to put back."""

from __future__ import annotations

from koord.host.files import Target
from koord.host.originals import Originals
from tests.host.undo.rig import ORIGINALS, QUOTA, Rig


def is_anything_left(rig: Rig) -> bool:
    return not rig.record.is_empty


def test_nothing_is_left_of_a_cgroup_that_is_gone(rig: Rig) -> None:
    assert not is_anything_left(rig)
    path = rig.put(QUOTA, "50000\n")
    rig.record.note_originals(ORIGINALS)
    assert is_anything_left(rig), "the container may be made at any moment"
    rig.record.take_over(QUOTA, rig.reading(QUOTA), 100_000, ORIGINALS.key, ORIGINALS.values["cpu_quota"])
    assert is_anything_left(rig)
    path.unlink()
    assert not is_anything_left(rig)
    rig.record.note_originals(Originals(ORIGINALS.key, ORIGINALS.values, QUOTA.cgroup))
    assert is_anything_left(rig), "the runtime is about to write"


def test_a_file_that_is_left_is_enough(rig: Rig) -> None:
    targets = [QUOTA, Target("/kubepods/pod2", "cpu_quota")]
    paths = [rig.put(target, "50000\n") for target in targets]
    for target in targets:
        rig.take(target, 40_000)
    for path in paths:
        assert is_anything_left(rig)
        path.unlink()
    assert not is_anything_left(rig)
