"""All hooks over one pod context: the one place where their edits meet.

Pure: the same context, policy and limits give the same edits to each caller (the hook service before a container
exists, NodeInspect afterwards). Fails with UndeclaredEdit when a hook edits a field that the table does not grant it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from qosd.hooks import tierquota
from qosd.hooks.edits import Edits, merge
from qosd.hooks.table import HOOKS, Hook
from qosd.model.besteffort import NO_LIMITS, BestEffortLimits
from qosd.model.pod import PodContext
from qosd.model.policy import EffectivePolicy


class UndeclaredEdit(AssertionError):
    """A hook edited a field that its row of the table does not list: an error of ours."""


def decide(
    pod: PodContext, policy: EffectivePolicy, limits: BestEffortLimits = NO_LIMITS, hooks: Sequence[Hook] = HOOKS
) -> Edits:
    """Returns the merged edits of the ``hooks`` that are on and run at ``pod.stage``, with the pod's problems."""
    stage = pod.stage
    parts = [_run(hook, pod, policy, limits) for hook in hooks if stage in hook.stages and is_on(hook, policy)]
    return tierquota.below_tier(merge((Edits(problems=pod.problems), *parts)), pod, policy, limits)


def is_on(hook: Hook, policy: EffectivePolicy) -> bool:
    """Returns whether neither ``node.hooks`` nor its feature gate turns the hook off."""
    return policy.enabled(hook.name) and (not hook.gate or policy.gate(hook.gate).is_on)


def decide_call(pod: PodContext, policy: EffectivePolicy, limits: BestEffortLimits) -> Edits:
    """Returns ``decide``'s edits, with the bound of a newcomer, for a container that a CRI or NRI call is about."""
    return tierquota.of_newcomer(decide(pod, policy, limits), pod, limits)


def carried(edits: Edits, policy: EffectivePolicy, *, restores: bool) -> Edits:
    """Returns the ``edits`` that the answer to a CRI or NRI call carries: all, or all but the limits.

    kubelet reports the resources that the runtime is told of a container, and the scheduler counts those. ``restores``:
    kubelet is given back what it requested; else the limits are written behind the runtime's back, unless
    ``node.limitsInCRI`` of the rules file says otherwise.
    """
    in_cri = policy.node.limits_in_cri
    return edits if (restores if in_cri is None else in_cri) else edits.without_limits


def _run(hook: Hook, pod: PodContext, policy: EffectivePolicy, limits: BestEffortLimits) -> Edits:
    edits = hook.decide(pod, policy, limits)
    if not edits.items and not edits.abstentions:
        return edits
    undeclared = [edit.name for edit in edits.items if not hook.may_edit(edit)]
    if undeclared:
        raise UndeclaredEdit(f"hook {hook.name} edits {', '.join(undeclared)}, which its row does not list")
    items = tuple([replace(edit, hook=hook.name) for edit in edits.items])
    return Edits(items, edits.problems, tuple([replace(one, hook=hook.name) for one in edits.abstentions]))
