"""What makes pods a gang, and what they ask for as one: Koordinator's labels and annotations, and PodGroups.

Sources: Koordinator's apis/extension/scheduling.go and coscheduling.go; the scheduler-plugins project's lightweight
labels (pod-group.scheduling.sigs.k8s.io).

A value that cannot be understood, and that could let a gang start otherwise than whole, blocks it (``blocked``); any
other counts as absent and is among ``problems``. No function here raises anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, TypeVar

from koord.model import durations
from koord.model.core import ObjectMeta
from koord.model.scheduling.koordinator import PodGroup

LABEL_POD_GROUP = "pod-group.scheduling.sigs.k8s.io"
LABEL_NAME, LABEL_MIN = f"{LABEL_POD_GROUP}/name", f"{LABEL_POD_GROUP}/min-available"
_PREFIX = "gang.scheduling.koordinator.sh/"
ANNOTATION_NAME, ANNOTATION_MIN = f"{_PREFIX}name", f"{_PREFIX}min-available"
ANNOTATION_TOTAL, ANNOTATION_WAITING_TIME = f"{_PREFIX}total-number", f"{_PREFIX}waiting-time"
ANNOTATION_MODE, ANNOTATION_GROUPS = f"{_PREFIX}mode", f"{_PREFIX}groups"
ANNOTATION_MATCH_POLICY = f"{_PREFIX}match-policy"
ANNOTATION_MATCH_POLICY_ALIAS = f"{LABEL_POD_GROUP}/match-policy"
DEFAULT_TIMEOUT_S = 600.0
_SECOND_NS = 10**9


class GangKey(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class GangMode(StrEnum):
    """Upstream's: whether members that hold a node give it back when another one gets none. Here nobody holds a node
    while others wait, so both are the same.
    """

    STRICT = "Strict"
    NON_STRICT = "NonStrict"


class MatchPolicy(StrEnum):
    """Which members count for the minimum, beside those that are placed together now."""

    ONLY_WAITING = "only-waiting"
    """None."""
    WAITING_AND_RUNNING = "waiting-and-running"
    """Those that are on a node."""
    ONCE_SATISFIED = "once-satisfied"
    """Those, and those that have ended in success. As long as there is one, members that nobody makes are not waited
    for.
    """


Choice = TypeVar("Choice", GangMode, MatchPolicy)


class GangDefaults(NamedTuple):
    """Of what a gang does not say."""

    timeout_s: float = DEFAULT_TIMEOUT_S
    match_policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED


class GangSettings(NamedTuple):
    """``min_member``: so many are placed together, or none. ``total``: so many are expected. ``group``: the gangs that
    start together, itself among them, sorted. ``blocked``: why it cannot start as it is; "": it can.
    """

    min_member: int
    total: int
    group: tuple[GangKey, ...]
    mode: GangMode = GangMode.STRICT
    match_policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED
    waiting_s: float = DEFAULT_TIMEOUT_S
    blocked: str = ""
    problems: tuple[str, ...] = ()


def key_of(pod: ObjectMeta) -> GangKey | None:
    """Returns the gang that the pod is a member of; None: of none."""
    name = pod.labels.get(LABEL_POD_GROUP) or pod.labels.get(LABEL_NAME) or pod.annotations.get(ANNOTATION_NAME)
    return GangKey(pod.namespace, name) if name else None


def settings_of_pod(pod: ObjectMeta, key: GangKey, defaults: GangDefaults) -> GangSettings | None:
    """Returns what a member says of a gang that has no PodGroup; None: it says no minimum."""
    for texts, name in ((pod.annotations, ANNOTATION_MIN), (pod.labels, LABEL_MIN)):
        if name in texts:
            least = _whole(texts[name])
            blocked = "" if least is not None else f"{name}: {texts[name]!r} is no whole number above 0"
            return _settings(key, least or 0, pod.annotations, defaults, defaults.timeout_s, blocked)
    return None


def settings_of_group(group: PodGroup, defaults: GangDefaults) -> GangSettings:
    """A minimum of 0 or less lets each member start by itself."""
    metadata, seconds = group.metadata, group.spec.schedule_timeout_seconds
    waiting_s = float(seconds) if seconds is not None and seconds > 0 else defaults.timeout_s
    key = GangKey(metadata.namespace, metadata.name)
    return _settings(key, max(0, group.spec.min_member), metadata.annotations, defaults, waiting_s, "")


def _settings(
    key: GangKey,
    least: int,
    annotations: Mapping[str, str],
    defaults: GangDefaults,
    waiting_s: float,
    blocked: str,
) -> GangSettings:
    problems: list[str] = []
    total = least
    if (text := annotations.get(ANNOTATION_TOTAL)) is not None:
        total = max(least, _whole(text) or 0)
        if _whole(text) is None:
            problems.append(f"{ANNOTATION_TOTAL}: {text!r} is no whole number above 0")
    if (text := annotations.get(ANNOTATION_WAITING_TIME)) is not None:
        waiting_ns = durations.parse_ns(text)
        if waiting_ns is None:
            problems.append(f"{ANNOTATION_WAITING_TIME}: {text!r} is no duration")
        else:
            waiting_s = waiting_ns / _SECOND_NS
    mode = _chosen(annotations, ANNOTATION_MODE, GangMode.STRICT, problems)
    policy = _chosen(annotations, ANNOTATION_MATCH_POLICY_ALIAS, defaults.match_policy, problems)
    policy = _chosen(annotations, ANNOTATION_MATCH_POLICY, policy, problems)
    group: tuple[GangKey, ...] | None = (key,)
    if text := annotations.get(ANNOTATION_GROUPS):
        group = _group(text, key)
        if group is None:
            blocked = blocked or f'{ANNOTATION_GROUPS}: {text!r} is no list of "namespace/name"'
    return GangSettings(least, total, group or (key,), mode, policy, waiting_s, blocked, tuple(problems))


def _chosen(annotations: Mapping[str, str], name: str, default: Choice, problems: list[str]) -> Choice:
    text, choices = annotations.get(name), type(default)
    if text is None:
        return default
    if text in tuple(choices):
        return choices(text)
    problems.append(f"{name}: {text!r} is not one of {', '.join(choices)}")
    return default


def _group(text: str, key: GangKey) -> tuple[GangKey, ...] | None:
    """Returns the gangs that are listed, and ``key``; None: it is no such list."""
    try:
        said = json.loads(text)
    except ValueError:
        return None
    if not isinstance(said, list) or not all(isinstance(each, str) for each in said):
        return None
    parts = [each.split("/") for each in said]
    if not all(len(each) == 2 and all(each) for each in parts):
        return None
    return tuple(sorted({GangKey(*each) for each in parts} | {key}))


def _whole(text: str) -> int | None:
    """Returns a number of members; None: it is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0 else None
