"""The record keeps what kubelet requested of a container until its files are taken over, claimed or forgotten."""

from __future__ import annotations

import threading

import pytest

from koord.host.originals import ContainerKey, Original, Originals, Pending
from koord.host.restoring import claim, expect, planned, restore
from koord.host.undoable import RestoreOutcome
from tests.host.undo.rig import ORIGINALS, QUOTA, Rig


def test_what_was_asked_for_outlives_our_death_until_it_is_forgotten(rig: Rig) -> None:
    rig.record.note_originals(ORIGINALS)
    rig.record.note_originals(ORIGINALS)
    assert rig.file.read_bytes().count(b"\n") == 2
    assert rig.reopen().originals_of(ORIGINALS.key) == ORIGINALS
    rig.record.note_originals(Originals(ORIGINALS.key, {}))
    assert rig.record.originals == rig.reopen().originals == ()
    rig.record.note_originals(ORIGINALS)
    assert rig.reopen("another boot").originals == ()


def test_a_file_is_taken_over_and_settled_at_once(rig: Rig) -> None:
    rig.put(QUOTA, "50000\n")
    rig.record.note_originals(ORIGINALS)
    seen = ORIGINALS.values["cpu_quota"]
    rig.record.take_over(QUOTA, rig.reading(QUOTA), 100_000, ORIGINALS.key, seen)
    originals = rig.reopen().originals_of(ORIGINALS.key)
    assert originals == Originals(ORIGINALS.key, {"cpu_quota": Original(100_000, 50_000)}, QUOTA.cgroup)
    assert rig.record.base_of(QUOTA, rig.reading(QUOTA)) == 100_000
    assert rig.take(QUOTA, 40_000) == 100_000


def test_an_update_that_comes_meanwhile_stays_news(rig: Rig) -> None:
    rig.put(QUOTA, "50000\n")
    rig.record.note_originals(ORIGINALS)
    newer = Originals(ORIGINALS.key, {"cpu_quota": Original(70_000, 50_000, Pending.UPDATED)})
    rig.record.note_originals(newer)
    rig.record.take_over(QUOTA, rig.reading(QUOTA), 100_000, ORIGINALS.key, ORIGINALS.values["cpu_quota"])
    rig.record.settle(QUOTA, ORIGINALS.key, ORIGINALS.values["cpu_quota"])
    assert rig.reopen().originals_of(ORIGINALS.key) == newer


def test_hooks_note_while_the_actuator_writes(rig: Rig) -> None:
    """From two threads, through several rewritings of the file."""
    rig.put(QUOTA, "100000\n")
    reading = rig.reading(QUOTA)

    def note() -> None:
        for number in range(2000):
            rig.record.note_originals(
                Originals(ContainerKey("uid", "main", number % 10), ORIGINALS.values, str(number))
            )

    thread = threading.Thread(target=note)
    thread.start()
    for quota in range(5_000, 7_000):
        rig.record.remember(QUOTA, reading, quota)
    thread.join()
    opened = rig.reopen()
    assert not opened.problems
    assert sorted(int(each.cgroup) for each in opened.originals) == list(range(1990, 2000))
    assert [entry.ours[0] for entry in opened.entries] == [6_999]


@pytest.mark.parametrize("known", [True, False])
def test_what_a_container_was_made_with_is_claimed(rig: Rig, known: bool) -> None:
    """Nobody had looked at its file, or the runtime wrote it again after another value of ours."""
    rig.put(QUOTA, "50000\n")
    groups = {}
    if known:
        settled = ORIGINALS.settled("cpu_quota", QUOTA.cgroup)
        rig.record.note_originals(settled)
        rig.record.take_over(QUOTA, rig.reading(QUOTA), 100_000, ORIGINALS.key, settled.values["cpu_quota"])
        for value in (40_000, 30_000):
            rig.take(QUOTA, value)
        rig.put(QUOTA, "50000\n")
    else:
        rig.record.note_originals(ORIGINALS)
        assert planned(rig.writer, rig.record) == ()
        groups = {ORIGINALS.key: QUOTA.cgroup}
    claim(rig.writer, rig.record, groups)
    (line,) = restore(rig.writer, rig.record)
    assert (line.outcome, line.before, line.after) == (RestoreOutcome.RESTORED, 50_000, 100_000)


def test_what_the_runtime_is_asked_to_write_is_no_foreign_value(rig: Rig) -> None:
    """The base is what someone wrote into the file, though the runtime knows nothing of it."""
    rig.put(QUOTA, "70000\n")
    rig.take(QUOTA, 50_000)
    expect(rig.writer, rig.record, Originals(ORIGINALS.key, ORIGINALS.values, QUOTA.cgroup))
    rig.put(QUOTA, "100000\n")
    (line,) = restore(rig.writer, rig.reopen())
    assert (line.outcome, line.after) == (RestoreOutcome.RESTORED, 70_000)
