"""What ``koordctl plan`` prints is what the tick decides, and what was decided is what is done, while pods churn.

qosd's own objects run here, driven at 20 Hz. A tick reads kernel files, which others write at any moment: so the plan
is asked for before and after the decision. If both are the same the world stood still, and the decision must be just
that; else every file's writes must be those of the one or of the other. A file that somebody else wrote and that went
with its pod, both between the two plans, is in neither.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from integration.harness.cri import Cri
from integration.harness.pods import Pod
from integration.node import kinds, settings
from integration.node.churn import FOREIGN, Node, churning
from integration.node.daemon import Row, read_journal
from koord.host.reconcile.plan import PlannedWrite
from koord.pb.koord import inspect_pb2 as inspect
from qosd.act.plan import TickPlan, TickResult
from qosd.assembly import assemble
from qosd.inspect import plan
from qosd.inspect.inspector import Inspector
from qosd.metrics import Metrics
from qosd.model.metric import Scope
from qosd.model.snapshot import NodeSnapshot
from qosd.node import JOURNAL
from qosd.node import Node as Qosd
from qosd.options import Options
from qosd.sense.table import METRICS
from qosd.tickscheduler import TickReason

HZ = 20
BEAT = 20  # ticks from one sample to the next
KILLED = 0.3  # of the ticks with writes: how many lose a pod between decision and act
# Values that make no later write of Koord's fail; a CPU set or a quota of a parent's could.
HARMLESS = tuple(file for file in FOREIGN if file[1] in ("cpu.shares", "memory.limit_in_bytes"))
FORGET_S = 15.0
NOTICES = ("foreign", "yielded", "unreadable", "unsupported", "adopted", "leftover")

Write = tuple[Any, ...]
"""A planned write as all who show it must agree on it; the path comes first."""


@dataclass(slots=True)
class Seen:
    """Results of the ticks."""

    still: int = 0
    moving: int = 0
    writes: int = 0
    results: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    outcomes: dict[int, list[tuple[str, str, str]]] = field(default_factory=dict)
    """By tick: path, value and result of each write."""
    groups: set[str] = field(default_factory=set)
    """Cgroups of all pods and containers that any snapshot had."""

    def add(self, tick: int, result: TickResult) -> None:
        """What the journal must tell of this tick."""
        self.outcomes[tick] = [(one.write.path, str(one.write.after), one.result) for one in result.outcomes]


async def test_the_plan_is_the_tick_and_the_tick_is_done(
    anchor: Pod, cri: Cri, runtime: Path, kubepods: str, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    world = Node(runtime, kubepods, settings.SEED, HARMLESS)
    seen = Seen()
    async with running(runtime, tmp_path) as qosd:
        began_s = time.monotonic()
        with churning(world, 30, foreign_hz=20):
            while seen.still < settings.TICKS and seen.moving <= settings.TICKS:
                await tick(qosd, world, cri, seen)
                due_s = began_s + (seen.still + seen.moving) / HZ
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            hz = (seen.still + seen.moving) / (time.monotonic() - began_s)
        left = await leftovers(qosd, seen)
    differences = journal_differences(seen, read_journal(tmp_path / "state" / JOURNAL))
    figure(
        f"{seen.still} ticks with plan = decision, {seen.moving} more during which kernel files changed, {hz:.1f} Hz;"
        f" {world.tally.text()} (SEED={settings.SEED}); {seen.writes} writes decided:"
        f" {', '.join(f'{count} {result}' for result, count in seen.results.most_common())}"
    )
    assert seen.wrong == []
    assert seen.still >= settings.TICKS
    assert set(seen.results) <= {"done", "vanished", "failed readback"}
    assert seen.results["vanished"], "no directory vanished between decision and act"
    assert differences == []
    assert left == []


@asynccontextmanager
async def running(runtime: Path, directory: Path) -> AsyncIterator[Qosd]:
    """qosd without its sockets and its clock; it knows its pods when it is given."""
    rules = directory / "rules.yaml"
    rules.write_text(kinds.RULES)
    options = Options(
        rules_file=rules, hookserver_dir="", runtime_endpoint=f"unix://{runtime}", nri_socket="",
        kubelet_state_dir=directory / "kubelet", run_dir=directory / "run", state_dir=directory / "state",
    )  # fmt: skip
    qosd = assemble(options, Metrics())
    try:
        qosd.start()
        async with asyncio.timeout(10):
            while qosd.pods.age_s is None:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        yield qosd
    finally:
        await qosd.close()


async def tick(qosd: Qosd, world: Node, cri: Cri, seen: Seen) -> None:
    """One turn of the node's loop, opened up between its parts."""
    inspector = Inspector(qosd)
    number = seen.still + seen.moving
    chance = random.Random(f"{settings.SEED}/{number}")
    scene = qosd._tick_inputs()
    reason = TickReason.CHANGE if number % BEAT else TickReason.BEAT
    snapshot = await qosd.in_thread(lambda: qosd.loop.look(scene, reason))
    before = shown(await plan.answer(inspector, inspect.PlanRequest()))
    decided: TickPlan = await qosd.in_thread(qosd.loop.decide)
    after = shown(await plan.answer(inspector, inspect.PlanRequest()))
    compare(before, lasting([planned(write) for write in decided.writes], before, after), after, seen)
    if decided.writes and chance.random() < KILLED:
        victim = chance.choice(decided.writes).pod
        await asyncio.to_thread(world.remove, cri, victim)
    result: TickResult = await qosd.in_thread(lambda: qosd.actuator.execute(decided))
    note(decided, result, snapshot.tick, seen)
    seen.groups |= groups_of(snapshot)


async def leftovers(qosd: Qosd, seen: Seen) -> list[str]:
    """What qosd still has of pods that are gone, after at most ``FORGET_S`` of ticks."""
    until = time.monotonic() + FORGET_S
    while True:
        result, snapshot = await qosd.tick(TickReason.BEAT), qosd.loop.snapshot
        assert result is not None and snapshot is not None
        seen.add(snapshot.tick, result)
        gone = seen.groups - groups_of(snapshot)
        found = [*_remembered(qosd, gone), *_sampled(qosd, gone)]
        if (not found and not result.outcomes) or time.monotonic() > until:
            return found
        await asyncio.sleep(0.2)


def groups_of(snapshot: NodeSnapshot) -> set[str]:
    pods = {pod.cgroup for pod in snapshot.pods}
    return (pods | {container.cgroup for pod in snapshot.pods for container in pod.containers}) - {""}


def _remembered(qosd: Qosd, gone: Collection[str]) -> list[str]:
    acts = qosd.actuator.files.report
    known = {"known": acts.states, "refused": acts.refused}
    undo = [f"undo record: {entry.path}" for entry in qosd.undo.entries if entry.cgroup in gone]
    return [
        f"{what}: {target}" for what, targets in known.items() for target in targets if target.cgroup in gone
    ] + undo


def _sampled(qosd: Qosd, gone: Collection[str]) -> list[str]:
    store = qosd.sense.store
    newest = [f"{each.name} of {cgroup}" for each, rows in store.newest().items() for cgroup in rows if cgroup in gone]
    kept = [metric for metric in METRICS if metric.scope in (Scope.POD, Scope.CONTAINER)]
    return newest + [
        f"history: {each.name} of {cgroup}" for each in kept for cgroup in gone if store.series(each, cgroup)
    ]


def lasting(decided: Sequence[Write], before: Sequence[Write], after: Sequence[Write]) -> list[Write]:
    """``decided`` without the writes that neither plan has, and whose directory is gone by now."""
    return [write for write in decided if write in before or write in after or Path(write[0]).parent.exists()]


def compare(before: Sequence[Write], decided: Sequence[Write], after: Sequence[Write], seen: Seen) -> None:
    if before == after:
        seen.still += 1
        if decided != before:
            seen.wrong.append(difference(decided, before))
        return
    seen.moving += 1
    for path in {write[0] for write in (*before, *decided, *after)}:
        of_file = [[write for write in plan if write[0] == path] for plan in (decided, before, after)]
        if of_file[0] not in of_file[1:]:
            seen.wrong.append(f"decided {of_file[0]}, planned {of_file[1]} or {of_file[2]}")


def difference(decided: Sequence[Write], planned: Sequence[Write]) -> str:
    """The difference of two plans; their order if they have the same writes."""
    surplus = [write for write in decided if write not in planned]
    missing = [write for write in planned if write not in decided]
    if surplus or missing:
        return f"decided and not planned: {surplus}; planned and not decided: {missing}"
    return f"decided {[write[0] for write in decided]}, planned in the order {[write[0] for write in planned]}"


def note(decided: TickPlan, result: TickResult, number: int, seen: Seen) -> None:
    """Every decided write was tried, in order, and none besides; one that vanished has no directory any more."""
    if [outcome.write for outcome in result.outcomes] != list(decided.writes):
        seen.wrong.append(f"tick {number}: decided {decided.writes}, executed {result.outcomes}")
    seen.writes += len(decided.writes)
    seen.results.update(outcome.result for outcome in result.outcomes)
    for outcome in result.outcomes:
        if outcome.result == "vanished" and Path(outcome.write.path).parent.exists():
            seen.wrong.append(f"tick {number}: {outcome.write.path} is there, but {outcome.detail}")
    seen.add(number, result)


def journal_differences(seen: Seen, rows: Sequence[Row]) -> list[str]:
    """Ticks whose results differ from the journal."""
    told: dict[int, list[tuple[str, str, str]]] = {number: [] for number in seen.outcomes}
    for row in rows:
        if row.result not in NOTICES:
            told.setdefault(row.tick, []).append((row.path, str(row.after), row.result))
    return [
        f"tick {number}: executed {seen.outcomes.get(number)}, journal {written}"
        for number, written in told.items()
        if written != seen.outcomes.get(number)
    ]


def shown(answer: inspect.PlanResponse) -> list[Write]:
    return [
        (each.path, each.cgroup, each.name, each.before, each.after, each.final, each.owner, each.why, each.pod,
         [(one.name, _value(one)) for one in each.inputs])
        for each in answer.writes
    ]  # fmt: skip


def planned(each: PlannedWrite) -> Write:
    inputs = [(name, value) for name, value in each.inputs.items() if name != "formula"]
    return (each.path, each.target.cgroup, each.target.name, str(each.before), str(each.after), each.final, each.by,
            each.why, each.pod, inputs)  # fmt: skip


def _value(one: inspect.Input) -> int | float | str | None:
    which = one.WhichOneof("value")
    value: int | float | str | None = None if which is None else getattr(one, which)
    return value
