"""Plan: the writes and evictions that will come."""

from __future__ import annotations

from koord.host.evictions import EVICTION
from koord.host.reconcile.plan import PlannedWrite
from koord.pb.koord import inspect_pb2 as inspect
from qosd.act.plan import TickPlan
from qosd.act.rehearsals import DRY_RUN
from qosd.decide.rehearsal import Rehearsed
from qosd.inspect import convert
from qosd.inspect.inspector import Inspector


async def answer(inspector: Inspector, request: inspect.PlanRequest) -> inspect.PlanResponse:
    return message(await inspector.node.plan(), inspector.policy())


def message(plan: TickPlan | None, policy: inspect.Policy) -> inspect.PlanResponse:
    """Returns the next tick's writes and evictions; nothing if ``plan`` is None, as before the first tick."""
    if plan is None:
        return inspect.PlanResponse(policy=policy)
    return inspect.PlanResponse(
        tick=plan.decisions.tick,
        observed_unix_ns=plan.decisions.wall_ns,
        writes=[_write(act) for act in plan.writes if act.target.name != EVICTION],
        evictions=[
            *(
                inspect.Eviction(pod=each.pod, uid=each.uid, strategy=strategy, why=each.why)
                for strategy, each in plan.decisions.evictions
            ),
            *(
                inspect.Eviction(pod=act.pod, strategy=strategy, why=f"{DRY_RUN}: {act.why}")
                for strategy, act in plan.decisions.acts(Rehearsed)
                if act.target.name == EVICTION
            ),
        ],
        strategies=convert.strategies(plan.decisions),
        policy=policy,
    )


def _write(write: PlannedWrite) -> inspect.PlannedWrite:
    return inspect.PlannedWrite(
        path=write.path,
        cgroup=write.target.cgroup,
        name=write.target.name,
        unit=convert.unit_of(write.target.name),
        before=convert.text(write.before),
        after=str(write.after),
        final=write.final,
        owner=write.by,
        why=write.why,
        pod=write.pod,
        inputs=convert.inputs(write.inputs),
    )
