"""Says which CRI calls are intercepted, and how, for the hook servers that there are.

One row per method; the plans follow from it and are looked up by path for every stream. A call that no server wants to
edit is still tapped where the cache needs its request, and the answers of calls that report containers are rewritten.
Invariant: a path that is not in the table passes unread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from runtimeproxy.cri.requested import STATUSES
from runtimeproxy.hooks.stages import CallStage
from runtimeproxy.intercept import StreamPlan, Treatment

SERVICES = ("/runtime.v1.RuntimeService/", "/runtime.v1alpha2.RuntimeService/")

RUN_POD = "RunPodSandbox"
STOP_POD = "StopPodSandbox"
REMOVE_POD = "RemovePodSandbox"
UPDATE_POD = "UpdatePodSandboxResources"
RESTORE_POD = "RestorePod"
CREATE = "CreateContainer"
START = "StartContainer"
STOP = "StopContainer"
REMOVE = "RemoveContainer"
UPDATE = "UpdateContainerResources"


@dataclass(frozen=True, slots=True)
class Method:
    """A CRI method and its hooks. ``tapped``: the cache needs the request; ``answer``: and the ids in the answer."""

    name: str
    pre: tuple[CallStage, ...] = ()
    post: CallStage | None = None
    tapped: bool = True
    answer: bool = False


METHODS = {
    method.name: method
    for method in (
        Method(RUN_POD, pre=(CallStage.PRE_RUN_POD,), answer=True),
        Method(STOP_POD, post=CallStage.POST_STOP_POD),
        Method(REMOVE_POD, pre=(CallStage.PRE_REMOVE_POD,)),
        Method(UPDATE_POD, pre=(CallStage.PRE_UPDATE_POD,)),
        Method(RESTORE_POD, pre=(CallStage.PRE_RUN_POD, CallStage.PRE_CREATE), answer=True),
        Method(CREATE, pre=(CallStage.PRE_CREATE,), answer=True),
        Method(START, pre=(CallStage.PRE_START,), post=CallStage.POST_START, tapped=False),
        Method(STOP, post=CallStage.POST_STOP),
        Method(REMOVE, post=CallStage.POST_REMOVE),
        Method(UPDATE, pre=(CallStage.PRE_UPDATE,)),
    )
}
_STATUS_PLANS = {service + name: StreamPlan(Treatment.REWRITE) for name in STATUSES for service in SERVICES}


@lru_cache(64)
def split(path: str) -> tuple[str, Method]:
    """Returns the service prefix (with both slashes) and the method of an intercepted path; KeyError for any other."""
    slash = path.rindex("/") + 1
    return path[:slash], METHODS[path[slash:]]


def plans(
    holds: Callable[[CallStage], bool], fails_closed: Callable[[CallStage], bool], hold_create: bool
) -> dict[str, StreamPlan]:
    """Returns the plan of every path that does not just pass.

    ``holds``: whether a call may have to wait for a server of the stage; ``fails_closed``: whether such a server is
    under policy Fail; ``hold_create``: whether a sandbox may have been edited, so that its containers' requests need
    the same edit.
    """
    found: dict[str, StreamPlan] = {}
    for method in METHODS.values():
        if any(map(holds, method.pre)) or (method.name == CREATE and hold_create):
            plan = StreamPlan(Treatment.HOLD, method.answer, any(map(fails_closed, method.pre)))
        elif method.tapped or (method.post and holds(method.post)):
            plan = StreamPlan(Treatment.TAP, method.answer)
        else:
            continue
        found.update({service + method.name: plan for service in SERVICES})
    return found | _STATUS_PLANS
