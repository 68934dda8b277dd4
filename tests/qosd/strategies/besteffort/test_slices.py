"""Which containers' tasks run in long slices: those of covered best-effort pods that run, where one is left to them."""

from __future__ import annotations

from msgspec import structs

from koord.host.sched import SLICE
from koord.host.taskattributes import TaskAttribute
from qosd.model.besteffort import BestEffortLimits, BestEffortScheduling
from qosd.model.snapshot import NodeSnapshot
from qosd.strategies.besteffort.slices import BestEffortSlices
from tests.qosd.contexts import V2, policy
from tests.qosd.podviews import EXITED, RUNNING, snapshot, view

JOB = view("job", "BE", "BestEffort", containers=(("main", RUNNING), ("init", EXITED)))
BATCH = view("batch", "BE")
GUEST, WEB = view("guest", "LS", "BestEffort"), view("web", "LS")
KATA = structs.replace(view("kata", "BE", "BestEffort"), runtime_handler="kata-qemu")
PODS = (JOB, BATCH, GUEST, WEB, KATA)


def leaving(slice_us: int) -> NodeSnapshot:
    limits = BestEffortLimits(BestEffortScheduling("busy", slice_us=slice_us))
    return snapshot(policy(V2), *PODS, limits=limits)


def test_threads_of_best_effort_containers_that_run() -> None:
    decision, _ = BestEffortSlices().decide(leaving(100_000), None)
    why = "best-effort tasks run for 100000 us in one go: busy"
    assert decision.acts == (
        TaskAttribute(SLICE, f"{JOB.cgroup}/main", 100_000, why, "default/job"),
        TaskAttribute(SLICE, f"{BATCH.cgroup}/main", 100_000, why, "default/batch"),
    )
    assert (decision.sentence, decision.opinions) == ("slices of 100000 us for the tasks of 2 containers", {})


def test_where_none_is_left_to_them_nothing_is_wanted() -> None:
    decision, _ = BestEffortSlices().decide(leaving(0), None)
    assert (decision.acts, decision.sentence) == ((), "tasks run in the kernel's own slices")


def test_a_policy_that_changes_otherwise_change_no_decision() -> None:
    first, memory = BestEffortSlices().decide(leaving(100_000), None)
    assert BestEffortSlices().decide(leaving(100_000), memory)[0] is first
