"""Which ClusterColocationProfiles a pod gets, and in which order.

Both selectors must match, the pod's on the labels as they were submitted; an absent or empty one matches everything.
The order is that of the annotation ``config.koordinator.sh/order`` (a whole number, 0 when absent; lower first), then
that of the names, so without the annotation it is Koordinator's. What a later profile sets overwrites the earlier.

Of the pods that a profile with ``probability`` matches it is applied to exactly that share. A hash of the profile and
the pod draws the lot, so the same pod has the same one each time.

Invariant: what cannot be decided matches nothing: a selector that Kubernetes would refuse, a namespace whose labels are
unknown, a probability that is none. A sentence says so each time. (Koordinator applies such a profile, or refuses all
pods.)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from koord.model import selector
from koord.model.core import ObjectMeta
from koord.model.profile import CERTAIN_PERCENT, ClusterColocationProfile
from koord.model.schema import SchemaError, clip
from koord.model.selector import LabelSelector

ANNOTATION_ORDER = "config.koordinator.sh/order"
ANNOTATION_SKIP_RESOURCES = "config.koordinator.sh/skip-update-resources"
"""Present on a profile, whatever its value: CPU and memory of the pods that it matches stay as they are."""
_NAMESPACES = "spec.namespaceSelector"
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)

Labels = Mapping[str, str]


class Matches(NamedTuple):
    """The profiles that match a pod, in the order in which they apply, and a sentence for each that is in doubt."""

    profiles: tuple[ClusterColocationProfile, ...] = ()
    problems: tuple[str, ...] = ()


class Order(NamedTuple):
    """Where a profile stands among others; ``problem`` says what is wrong with its annotation, "" if nothing is."""

    number: int
    name: str
    problem: str = ""


def matches(
    profiles: Iterable[ClusterColocationProfile], pod_labels: Labels, namespace_labels: Labels | None
) -> Matches:
    """Returns the profiles for a pod with these labels in a namespace with those; None: the namespace's labels are
    unknown.
    """
    matching: list[ClusterColocationProfile] = []
    problems: list[str] = []
    for profile in profiles:
        try:
            if _matches(profile, pod_labels, namespace_labels):
                matching.append(profile)
        except SchemaError as error:
            problems.append(f"{label(profile)} matches no pod: {error}")
        except LookupError as error:
            problems.append(f"{label(profile)} does not match this pod: {error.args[0]}")
    problems += [problem for profile in matching if (problem := order(profile).problem)]
    return Matches(tuple(sorted(matching, key=order)), tuple(problems))


def faults(profile: ClusterColocationProfile) -> tuple[str, ...]:
    """Why it is applied to no pod, or not as it says, whatever pods come: a sentence each."""
    found = []
    for own, path in ((profile.spec.selector, "spec.selector"), (profile.spec.namespace_selector, _NAMESPACES)):
        try:
            if own is not None and not own.is_empty:
                selector.check(own, path)
        except SchemaError as error:
            found.append(f"{label(profile)} matches no pod: {error}")
    try:
        is_chosen(profile, "")
    except ValueError as error:
        found.append(f"{label(profile)} is not applied: probability {error}")
    return tuple(filter(None, (*found, order(profile).problem)))


def order(profile: ClusterColocationProfile) -> Order:
    """Profiles apply in ascending order of this."""
    text, name = profile.metadata.annotations.get(ANNOTATION_ORDER), profile.metadata.name
    if text is None:
        return Order(0, name)
    if _WHOLE_NUMBER.fullmatch(text):
        return Order(int(text), name)
    why = f"{ANNOTATION_ORDER}: {clip(text)} is not a whole number of at most 9 digits, so 0 is assumed"
    return Order(0, name, f"{label(profile)}: {why}")


def keeps_resources(profiles: Iterable[ClusterColocationProfile]) -> bool:
    """Returns whether one of the matching profiles, applied or not, forbids that CPU and memory are translated."""
    return any(ANNOTATION_SKIP_RESOURCES in profile.metadata.annotations for profile in profiles)


def is_chosen(profile: ClusterColocationProfile, key: str) -> bool:
    """Returns whether the profile is applied to the matching pod of this sampling ``key``. Raises ValueError for a bad
    probability.
    """
    percent = profile.spec.probability_percent
    return percent == CERTAIN_PERCENT or _draw(profile.metadata.name, key) < percent


def sampling_key(pod: ObjectMeta, request_uid: str) -> str:
    """Returns what the pod's lot is drawn from: it tells the pod from all others, also from replicas of its Job.

    Its UID; before it has one, its name; and of a pod that is yet to be named (``generateName``), the request's UID.
    """
    return pod.uid or f"{pod.namespace}/{pod.name or request_uid}"


def label(profile: ClusterColocationProfile) -> str:
    """Returns the profile's name in sentences."""
    return f"ClusterColocationProfile {profile.metadata.name}"


def _matches(profile: ClusterColocationProfile, pod_labels: Labels, namespace_labels: Labels | None) -> bool:
    """Raises SchemaError for a selector that cannot be used, LookupError where the namespace's labels are missing."""
    spec = profile.spec
    if not _selects(spec.selector, pod_labels, "spec.selector"):
        return False
    if spec.namespace_selector is None or spec.namespace_selector.is_empty:
        return True
    if namespace_labels is None:
        raise LookupError("the labels of the pod's namespace are not known yet")
    return _selects(spec.namespace_selector, namespace_labels, _NAMESPACES)


def _selects(own: LabelSelector | None, labels: Labels, path: str) -> bool:
    """Raises SchemaError where the selector's labels are the pod's, and its expressions cannot be used."""
    if own is None or own.is_empty:
        return True
    if any(labels.get(key) != value for key, value in own.match_labels.items()):
        return False
    selector.check(own, path)
    return own.matches(labels)


def _draw(profile: str, key: str) -> int:
    """A number in 0..99, as if at random, that depends on both names only."""
    digest = hashlib.sha256(f"{profile}\0{key}".encode()).digest()
    return int.from_bytes(digest) % CERTAIN_PERCENT
