"""Files that the runtime wrote for us when it made a container: taken over without a write, given back as asked."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.host import files
from koord.host.files import Target, Value
from koord.host.order import Change, order
from koord.host.originals import ContainerKey, Original, Originals, Pending
from koord.host.restoring import claim, expect, restore
from qosd.act.created import UNSEEN_S
from qosd.decide.runner import StrategyStatus
from qosd.model.snapshot import PodView
from tests.fakes.cgroupstates import Machine, Scene
from tests.fakes.clock import S
from tests.fakes.kernel import NEW_GROUP, PAGE_BYTES
from tests.qosd.act.rig import OWNERS, Rig, wants
from tests.qosd.act.test_histories import Killed, Life
from tests.qosd.podviews import EXITED, RUNNING, view

CREATED = "CONTAINER_CREATED"
KEY = ContainerKey("a", "main", 0)
BOX = view("a").containers[1].cgroup
QUOTA, SHARES, CPUS, MEMORY, SWAP = (
    Target(BOX, name)
    for name in ("cpu_quota", "cpu_shares", "cpuset_cpus", "memory_limit_in_bytes", "memory_swap_limit_in_bytes")
)
EDITED = {
    "cpu_quota": Original(-1, 50_000, Pending.CREATED),
    "cpu_shares": Original(2, 512, Pending.CREATED),
}
WANTED = ((QUOTA, wants(50_000)), (SHARES, wants(512)))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """The hooks have answered and the runtime has made the container; nobody has looked yet."""
    rig = Rig(tmp_path)
    rig.undo.note_originals(Originals(KEY, EDITED))
    rig.make(BOX, cpu_quota="50000\n", cpu_shares="512\n")
    return rig


def tick(rig: Rig, state: str = RUNNING, seconds: float = 1.0) -> None:
    rig.actuator.files.follow((view("a", containers=[("main", state)]),), rig.now_ns)
    rig.tick(seconds)


def test_while_it_is_being_made_its_files_are_the_runtimes(rig: Rig) -> None:
    tick(rig, CREATED)
    assert (rig.actuator.files.report.owned, rig.undo.entries, rig.journal.entries) == ({}, (), [])


@pytest.mark.parametrize("dies", [False, True])
def test_taken_over_without_a_write_and_given_back_as_asked(rig: Rig, dies: bool) -> None:
    rig.say("hooks", *WANTED)
    tick(rig)
    assert rig.writer.tried == []
    assert [(row.name, row.before, row.after, row.result, row.why) for row in rig.journal.entries] == [
        ("cpu_quota", -1, 50_000, "adopted", "set at creation by the runtime, requested -1"),
        ("cpu_shares", 2, 512, "adopted", "set at creation by the runtime, requested 2"),
    ]
    assert {entry.name: entry.base for entry in rig.undo.entries} == {"cpu_quota": -1, "cpu_shares": 2}
    if dies:
        rig.crash()
    tick(rig)
    assert (len(rig.journal.entries), rig.writer.tried) == (2, [])
    rig.states = dict.fromkeys(OWNERS, StrategyStatus.DISABLED)
    rig.say("hooks")
    tick(rig)
    assert (rig.holds(QUOTA), rig.holds(SHARES)) == (-1, 2)
    assert (rig.actuator.files.report.owned, rig.undo.entries) == ({}, ())


def test_what_nobody_wants_by_now_is_given_back_at_once(rig: Rig) -> None:
    tick(rig)
    assert sorted(rig.written()) == [("cpu_quota", -1), ("cpu_shares", 2)]


def test_after_a_start_it_stays_until_its_strategy_has_decided(rig: Rig) -> None:
    rig.crash()
    rig.undecided = {"hooks"}
    tick(rig)
    assert rig.writer.tried == []
    rig.undecided, rig.opinions = set(), {"hooks": dict(WANTED)}
    tick(rig)
    assert rig.writer.tried == []
    rig.say("hooks")
    tick(rig)
    assert (rig.holds(QUOTA), rig.holds(SHARES)) == (-1, 2)


def test_what_someone_wrote_after_its_creation_is_the_base(rig: Rig) -> None:
    rig.put(SHARES, "700\n")
    rig.say("hooks", *WANTED)
    tick(rig)
    tick(rig)
    assert rig.actuator.files.report.owned[SHARES].base == 700
    assert rig.actuator.files.report.owned[QUOTA].base == -1


def test_another_value_is_wanted_before_anyone_looked(rig: Rig) -> None:
    rig.say("hooks", (QUOTA, wants(40_000)), (SHARES, wants(512)))
    tick(rig)
    assert rig.written() == [("cpu_quota", 40_000)]
    assert restored(rig) == {"cpu_quota": -1, "cpu_shares": 2}


def test_the_runtime_applies_its_specification_again(rig: Rig) -> None:
    """Our own older value is no one else's, however often it comes."""
    rig.say("hooks", (QUOTA, wants(40_000)), (SHARES, wants(512)))
    tick(rig)
    for _ in range(5):
        rig.put(QUOTA, "50000\n")
        rig.see(QUOTA)
        tick(rig)
        assert rig.holds(QUOTA) == 40_000
    assert (rig.actuator.files.report.owned[QUOTA].base, rig.actuator.files.report.contested) == (-1, {})
    assert "foreign" not in rig.journal.results()
    rig.put(QUOTA, "50000\n")
    assert restored(rig) == {"cpu_quota": -1, "cpu_shares": 2}


@pytest.mark.parametrize(("requested", "new", "held"), [(70_000, 50_000, 50_000), (70_000, 60_000, 60_000)])
def test_an_update_changes_what_is_given_back(rig: Rig, requested: int, new: int, held: int) -> None:
    rig.say("hooks", *WANTED)
    tick(rig)
    rig.undo.note_originals(Originals(KEY, {**EDITED, "cpu_quota": Original(requested, new, Pending.UPDATED)}, BOX))
    rig.put(QUOTA, f"{held}\n")
    rig.say("hooks", (QUOTA, wants(new)), (SHARES, wants(512)))
    tick(rig)
    assert (rig.actuator.files.report.owned[QUOTA].base, rig.writer.tried) == (requested, [])
    rig.crash()
    assert restored(rig) == {"cpu_quota": requested, "cpu_shares": 2}


def test_a_record_that_cannot_be_written_costs_time_only(rig: Rig, tmp_path: Path) -> None:
    """Nothing is released to a wrong base, and the next tick tries again."""
    held, rig.undo._lines._descriptor = rig.undo._lines._descriptor, open("/dev/full", "wb", 0).fileno()  # noqa: SIM115
    tick(rig)
    assert (rig.writer.tried, rig.actuator.files.report.owned) == ([], {})
    assert "refused" in rig.journal.results()
    rig.undo._lines._descriptor = held
    tick(rig, seconds=5)
    assert (rig.holds(QUOTA), rig.holds(SHARES)) == (-1, 2)


@pytest.mark.parametrize("pods", [(), (view("a", containers=[("main", EXITED)]),)], ids=["removed", "ended"])
def test_what_was_asked_for_a_container_that_is_gone_is_forgotten(rig: Rig, pods: tuple[PodView, ...]) -> None:
    tick(rig)
    rig.actuator.files.follow(pods, rig.now_ns)
    assert rig.undo.originals == ()


def test_what_was_asked_for_a_container_that_was_never_made_is_forgotten(rig: Rig) -> None:
    for seconds, known in ((0, 1), (UNSEEN_S - 1, 1), (UNSEEN_S, 0)):
        rig.actuator.files.follow((), rig.now_ns + seconds * S)
        assert len(rig.undo.originals) == known


def test_swap_stays_limited_with_memory_and_both_are_given_back(rig: Rig) -> None:
    made = {
        "memory_limit_in_bytes": Original(-1, 1 << 20, Pending.CREATED),
        SWAP.name: Original(-1, 1 << 20, Pending.CREATED),
    }
    rig.undo.note_originals(Originals(KEY, made))
    rig.make(BOX, memory_limit_in_bytes="1048576\n", memory_swap_limit_in_bytes="1048576\n")
    rig.say("hooks", (MEMORY, wants(1 << 20)))
    for seconds in (1, 60, 60):
        tick(rig, seconds=seconds)
    assert (rig.writer.tried, set(rig.actuator.files.report.owned)) == ([], {MEMORY, SWAP})
    rig.say("hooks")
    tick(rig)
    assert rig.written() == [(SWAP.name, -1), (MEMORY.name, -1)]
    assert rig.undo.entries == ()


def test_on_v1_the_limit_with_swap_grows_before_that_of_memory_and_follows_it_back(rig: Rig) -> None:
    rig.make(BOX, memory_limit_in_bytes="67108864\n", memory_swap_limit_in_bytes="67108864\n")
    rig.say("hooks", (MEMORY, wants(64 << 20)))
    tick(rig)
    assert rig.writer.tried == []
    for limit_bytes, written in ((128 << 20, (SWAP, MEMORY)), (96 << 20, (MEMORY, SWAP)), (-1, (SWAP, MEMORY))):
        done = len(rig.written())
        rig.say("hooks", (MEMORY, wants(limit_bytes)))
        tick(rig)
        assert rig.written()[done:] == [(target.name, limit_bytes) for target in written]
    rig.say("hooks")
    tick(rig)
    assert (rig.holds(MEMORY), rig.holds(SWAP), rig.undo.entries) == (64 << 20, 64 << 20, ())


def test_more_swap_than_memory_stays_as_it_is(rig: Rig) -> None:
    rig.make(BOX, memory_limit_in_bytes="67108864\n", memory_swap_limit_in_bytes="268435456\n")
    for limit_bytes in (128 << 20, 96 << 20):
        rig.say("hooks", (MEMORY, wants(limit_bytes)))
        tick(rig)
        assert (rig.holds(MEMORY), rig.holds(SWAP)) == (limit_bytes, 256 << 20)


def test_a_set_that_a_hook_emptied_is_no_value_of_ours(rig: Rig) -> None:
    """The runtime made the parent's of it, and a reconciler says nothing about it; only restoring does."""
    rig.undo.note_originals(Originals(KEY, {"cpuset_cpus": Original("1-2", "", Pending.CREATED)}))
    tick(rig)
    assert rig.writer.tried == []
    rig.put(CPUS, "\n")
    claim(rig.writer, rig.undo, {KEY: BOX})
    restore(rig.writer, rig.undo)
    assert rig.holds(CPUS) == "1-2"


def restored(rig: Rig) -> dict[str, Value | None]:
    """After SIGKILL and ``koordctl restore``, without a runtime to ask."""
    rig.crash()
    claim(rig.writer, rig.undo)
    restore(rig.writer, rig.undo)
    return {target.name: rig.holds(target) for target in (QUOTA, SHARES)}


# --- any history, over the model of the kernel -----------------------------------------------------------------------

ROWS = {
    "cpu_quota": st.sampled_from([-1, 5000, 20_000, 50_000]),
    "cpu_shares": st.sampled_from([2, 100, 512]),
    "cpuset_cpus": st.sampled_from(["0", "0-3", "2-5"]),
    "memory_limit_in_bytes": st.sampled_from([-1, 1 << 20, 1 << 30]),
}
VALUES = st.fixed_dictionaries(ROWS)
STEPS = st.lists(
    st.sampled_from(["want", "want another", "release", "crash", "apply again"])
    | st.tuples(st.integers(1, 6), st.booleans(), st.booleans()),
    max_size=7,
)


def with_swap(values: dict[str, Value], version: int) -> dict[str, Value]:
    """What the runtime makes of it: on v1 no more swap than memory (on v2 the model has no memory)."""
    limit = values["memory_limit_in_bytes"]
    if version == 2:
        return {name: value for name, value in values.items() if not name.startswith("memory")}
    return {**values, "memory_swap_limit_in_bytes": limit}


class Node:
    """A container that was made with ``made`` where ``requested`` was requested."""

    def __init__(self, root: Path, version: int, requested: dict[str, Value], made: dict[str, Value]) -> None:
        self.made = {Target(BOX, name): value for name, value in made.items()}
        start = {Target(BOX, name): NEW_GROUP[name] for name in made}
        scene = Scene(Machine(version, "0-7", "0"), (BOX,), frozenset(), start, {}, ())
        self.life = Life(scene, root)
        news = {
            name: Original(requested[name], made[name], Pending.CREATED)
            for name in made
            if requested[name] != made[name]
        }
        self.life.undo.note_originals(Originals(KEY, news))
        self.apply()

    def apply(self) -> None:
        """The runtime writes all that it was given."""
        model = self.life.writer.model
        changes = [Change(target, model.read(target), value) for target, value in self.made.items()]
        for step in order(changes, self.life.writer.version):
            model.write(step.target, step.value)
        self.life.writer._show(BOX)

    def tick(self, values: dict[str, Value]) -> None:
        self.life.actuator.files.follow((view("a"),), self.life.now_ns)
        self.life.tick({Target(BOX, name): wants(value) for name, value in values.items() if "swap" not in name})

    def holds(self) -> dict[str, Value]:
        return {target.name: self.life.writer.model.read(target) for target in self.made}


@pytest.mark.parametrize("version", [1, 2])
@settings(max_examples=20, deadline=None)
@given(requested=VALUES, made=VALUES, other=VALUES, steps=STEPS, by_restoring=st.booleans())
def test_whatever_happens_it_holds_in_the_end_what_was_asked_for(
    version: int,
    requested: dict[str, Value],
    made: dict[str, Value],
    other: dict[str, Value],
    steps: list[object],
    by_restoring: bool,
) -> None:
    requested, made, other = (with_swap(values, version) for values in (requested, made, other))
    with tempfile.TemporaryDirectory() as directory:
        node = Node(Path(directory), version, requested, made)
        life = node.life
        for step in steps:
            match step:
                case "want":
                    node.tick(made)
                case "want another":
                    node.tick(other)
                case "release":
                    node.tick({})
                case "crash":
                    life.crash()
                case "apply again":
                    node.tick(made)
                    node.apply()
                case (int(at), bool(after), bool(is_wanted)):
                    life.writer.dies_at, life.writer.dies_after = at, after
                    try:
                        node.tick(made if is_wanted else {})
                    except Killed:
                        life.crash()
                    life.writer.dies_at = -1
        if by_restoring:
            life.crash()
            claim(life.writer, life.undo, {KEY: BOX})
            for each in life.undo.originals:
                expect(life.writer, life.undo, Originals(KEY, each.values, BOX))
            restore(life.writer, life.undo)
        else:
            node.tick(made)
            node.tick({})
        held = node.holds()
        version = life.writer.version
        assert all(files.row(name).same(requested[name], held[name], PAGE_BYTES, version) for name in held), (
            requested,
            held,
        )
        assert life.undo.entries == ()
        life.undo.close()
