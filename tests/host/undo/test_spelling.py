"""Shares are put back as they were, whether the kernel keeps shares or weights and whichever mapping the node has."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.host.files import Target
from koord.host.originals import ContainerKey, Original, Originals, Pending
from koord.host.restoring import restore
from koord.host.undoable import RestoreOutcome
from koord.host.weights import Weights
from tests.host.undo.rig import Rig


@pytest.mark.parametrize(
    ("version", "made", "outcome"),
    [(1, "2", RestoreOutcome.RESTORED), (2, "1", RestoreOutcome.ALREADY_BASE)],
    ids=["v1", "v2"],
)
def test_shares_of_one_weight_differ_where_the_kernel_keeps_shares(
    tmp_path: Path, version: int, made: str, outcome: RestoreOutcome
) -> None:
    rig, shares = Rig(tmp_path, version), Target("/kubepods/pod1", "cpu_shares")
    path = rig.put(shares, made)
    rig.take(shares, 20)
    (line,) = restore(rig.writer, rig.record)
    assert (line.outcome, path.read_text().strip()) == (outcome, made)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 10_000), st.integers(2, 262_144), st.booleans())
def test_learning_the_mapping_changes_no_weight_that_is_put_back(
    weight: int, ours: int, is_written_again: bool
) -> None:
    shares = Target("/kubepods/pod1", "cpu_shares")
    with tempfile.TemporaryDirectory() as directory:
        rig = Rig(Path(directory), version=2)
        path = rig.put(shares, f"{weight}\n")
        rig.take(shares, ours)
        rig.writer.weights = Weights.QUADRATIC
        rig.record.spell(Weights.QUADRATIC, 100_000)
        if is_written_again:
            rig.take(shares, ours)
        rig.reopen()
        (line,) = restore(rig.writer, rig.record)
        rig.record.close()
        put_back = int(path.read_text())
    assert line.outcome in (RestoreOutcome.RESTORED, RestoreOutcome.ALREADY_BASE)
    assert put_back == weight or line.outcome is RestoreOutcome.ALREADY_BASE


@pytest.mark.parametrize(("version", "base"), [(1, 1024), (2, Weights.QUADRATIC.shares(Weights.LINEAR.weight(1024)))])
def test_only_a_base_that_was_read_from_a_weight_is_told_anew(tmp_path: Path, version: int, base: int) -> None:
    rig, box = Rig(tmp_path, version), Target("/kubepods/pod1/box", "cpu_shares")
    read = Target("/kubepods/pod1", "cpu_shares")
    for target in (read, box):
        rig.put(target, {1: "1024\n", 2: f"{Weights.LINEAR.weight(1024)}\n"}[version])
    rig.take(read, 2)
    originals = Originals(ContainerKey("uid", "main", 1), {"cpu_shares": Original(1024, 512, Pending.CREATED)})
    rig.record.note_originals(originals)
    rig.record.take_over(box, rig.reading(box), 1024, originals.key, originals.values["cpu_shares"])
    rig.record.spell(Weights.QUADRATIC, 100_000)
    assert {entry.cgroup: entry.base for entry in rig.reopen().entries} == {read.cgroup: base, box.cgroup: 1024}
