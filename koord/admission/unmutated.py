"""Pods that a dead webhook let through: what a persisted pod lacks of what its profiles set.

With ``failurePolicy: Ignore`` a pod that is created while no webhook answers is an ordinary one: it requests native CPU
and memory of production's. Nobody can mend that, for these fields cannot change; but it can be said.

Only what is certain counts: profiles that apply to all pods that they match and are no younger than the pod; labels,
annotations and fields that no mapping, suffix, patch or other lot may have changed; selectors by labels that no profile
sets. What remains open is whether somebody changed the pod's labels or the profile since, so the sentence says so.
A pod that lacks nothing but has native amounts besides had its webhook, and then a LimitRange.

Invariant: a pod that came out of ``mutation`` lacks nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from koord.admission import gates, profiles, settings, translation
from koord.admission.context import AdmissionContext
from koord.admission.settings import LABELS, ProfileSetting
from koord.model import core
from koord.model.core import Pod
from koord.model.profile import CERTAIN_PERCENT, ClusterColocationProfile
from koord.model.quantity import QuantityError

_TERMINAL = ("Succeeded", "Failed")


def missing_mutations(pod: Pod, context: AdmissionContext) -> str | None:
    """Returns a sentence about what the pod lacks; None if it lacks nothing, has ended, or is none of admission's."""
    metadata = pod.metadata
    if pod.status.phase in _TERMINAL or context.is_exempt(metadata):
        return None
    candidates = [profile for profile in context.profiles if _is_comparable(profile, pod, context.profiles)]
    found = profiles.matches(candidates, metadata.labels, context.namespaces.get(metadata.namespace)).profiles
    lacking = [f"{setting}={text}" for setting, text in _expected(found).items() if setting.value(pod) != text]
    keeps = context.is_on(gates.SKIP_MUTATING_RESOURCES) or profiles.keeps_resources(found)
    if found and not keeps:
        untranslated, double_counted = _native(pod)
        if double_counted and not lacking:
            return f"pod {metadata.namespace}/{metadata.name} {double_counted}"
        lacking += [f"{name} translated to the resource of its priority class" for name in untranslated]
    if not lacking:
        return None
    names = ", ".join(profile.metadata.name for profile in found)
    return (
        f"pod {metadata.namespace}/{metadata.name} lacks {', '.join(lacking)}, which ClusterColocationProfile {names} "
        "sets: no webhook answered when it was created, or its labels or the profile changed since; create it again"
    )


def _native(pod: Pod) -> tuple[tuple[str, ...], str]:
    """Returns what is not translated, and what is counted twice; nothing where the pod's amounts cannot be read."""
    try:
        untranslated = translation.untranslated(pod)
        return untranslated, translation.double_counted(pod) if untranslated else ""
    except QuantityError:
        return (), ""


def _expected(items: Iterable[ClusterColocationProfile]) -> Mapping[ProfileSetting, str]:
    """Returns what the profiles, in their order, leave on a pod for certain."""
    expected: dict[ProfileSetting, str] = {}
    doubtful: set[ProfileSetting] = set()
    for profile in items:
        values = settings.values(profile)
        if _is_certain(profile):
            expected |= values
            doubtful -= values.keys()
        else:
            doubtful |= values.keys()
        doubtful |= settings.derived(profile)
    return {setting: text for setting, text in expected.items() if setting not in doubtful}


def _is_certain(profile: ClusterColocationProfile) -> bool:
    """Returns whether the profile applies to each pod that it matches."""
    try:
        return profile.spec.probability_percent == CERTAIN_PERCENT
    except ValueError:
        return False


def _is_comparable(profile: ClusterColocationProfile, pod: Pod, others: Sequence[ClusterColocationProfile]) -> bool:
    """Returns whether the pod as it is shows that the profile matched it when it was created."""
    written = {setting for other in others for setting in (*settings.values(other), *settings.derived(other))}
    if any(ProfileSetting(LABELS, key) in written for key in _selector_keys(profile)):
        return False
    made, created = core.unix_s(profile.metadata.creation_timestamp), core.unix_s(pod.metadata.creation_timestamp)
    return made is None or created is None or made <= created


def _selector_keys(profile: ClusterColocationProfile) -> list[str]:
    """The pod's labels that the profile looks at."""
    wanted = profile.spec.selector
    return [] if wanted is None else [*wanted.match_labels, *(each.key for each in wanted.match_expressions)]
