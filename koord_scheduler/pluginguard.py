"""A user's plugin as the scheduler calls it: what it raises, or returns that is no answer, is a PluginError.

Only the pod that it was about pays for that. Where a plugin is asked what may help a pod, a failure counts as yes, so
that the pod is tried and the failure is told then. The plugin gets copies of what it could spoil by accident; that it
changes the state cannot be kept from it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from koord.scheduling.plugin import (
    MOST_SCORE,
    Event,
    Explanation,
    LabelPair,
    Plugin,
    PluginError,
    PodPatch,
    Reason,
    Reject,
    Rejection,
    Wait,
)
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools, Int64s

_log = logging.getLogger(__name__)


def guarded(plugin: Plugin) -> Plugin:
    """Returns what asks ``plugin`` and checks its answers."""

    class Guarded(_Guard):
        name = plugin.name
        filter_scope = plugin.filter_scope
        score_scope = plugin.score_scope

    return Guarded(plugin)


class _Guard(Plugin):
    """Each method raises PluginError where the plugin's does not do its part."""

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin
        self._told: dict[str, str] = {}

    def overrides(self, *methods: str) -> bool:
        return self.plugin.overrides(*methods)

    def goes_by_pods(self, state: ClusterState, pod: PodInfo) -> bool:
        return self._may("goes_by_pods", state, pod)

    def helped_by(self, state: ClusterState, pod: PodInfo) -> Sequence[LabelPair] | None:
        try:
            found = self._call("helped_by", state, pod)
            for each in () if found is None else self._sequence("helped_by", found):
                if not (isinstance(each, tuple) and len(each) == 2 and all(isinstance(part, str) for part in each)):
                    raise self._error("helped_by", f"has {each!r} among the labels, which is no key and value")
        except PluginError:
            return None
        return None if found is None else tuple(found)

    def is_helped_by(self, state: ClusterState, pod: PodInfo, event: Event) -> bool:
        return self._may("is_helped_by", state, pod, event)

    def filter(self, state: ClusterState, pod: PodInfo) -> Bools | None:
        if not self.overrides("filter"):
            return super().filter(state, pod)
        found = self._call("filter", state, pod)
        return None if found is None else self._mask("filter", found, state)

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        if not self.overrides("rejections"):
            return super().rejections(state, pod)
        found = self._call("rejections", state, pod)
        return [self._rejection(each, state) for each in self._sequence("rejections", found)]

    def score(self, state: ClusterState, pod: PodInfo, feasible: Bools) -> Int64s | int | None:
        found = self._call("score", state, pod, feasible.copy())
        if found is None or isinstance(found, int | np.integer):
            return self._score("score", found)
        if not (isinstance(found, np.ndarray) and found.dtype.kind in "iu" and found.shape == (state.length,)):
            raise self._error("score", f"returned {_kind(found)}, not int64[{state.length}], a whole number or None")
        for row in np.flatnonzero(feasible & ((found < 0) | (found > MOST_SCORE)))[:1]:
            name = state.table.name(int(row))
            raise self._error("score", f"gives node {name} {found[row]}, which is not in 0..{MOST_SCORE}")
        return found.astype(np.int64)

    def explain(self, state: ClusterState, pod: PodInfo, row: int, feasible: Bools) -> Explanation:
        if not self.overrides("explain"):
            return super().explain(state, pod, row, feasible)
        found = self._call("explain", state, pod, row, feasible.copy())
        if not isinstance(found, Explanation):
            raise self._error("explain", f"returned {_kind(found)}, not an Explanation")
        for each in self._sequence("explain", found.reasons):
            if not isinstance(each, Reason):
                raise self._error("explain", f"has {_kind(each)} among the reasons, not a Reason")
        return Explanation(tuple(found.reasons), self._score("explain", found.score))

    def preferred_nodes(self, state: ClusterState, pod: PodInfo) -> Sequence[str]:
        found = self._sequence("preferred_nodes", self._call("preferred_nodes", state, pod))
        for each in found:
            if not isinstance(each, str):
                raise self._error("preferred_nodes", f"has {_kind(each)} among the names of nodes")
        return found

    def reserve(self, state: ClusterState, pod: PodInfo, node: str) -> None:
        self._call("reserve", state, pod, node)

    def unreserve(self, state: ClusterState, pod: PodInfo, node: str) -> None:
        self._call("unreserve", state, pod, node)

    def permit(self, state: ClusterState, pod: PodInfo, node: str) -> Wait | Reject | None:
        found = self._call("permit", state, pod, node)
        if found is None or isinstance(found, Reject):
            return found
        if not isinstance(found, Wait):
            raise self._error("permit", f"returned {_kind(found)}, not a Wait, a Reject or None")
        if not isinstance(found.timeout_s, int | float) or not 0 < found.timeout_s < math.inf:
            raise self._error("permit", f"has a Wait of {found.timeout_s!r} s, which is no time")
        return found

    def pre_bind_patch(self, state: ClusterState, pod: PodInfo, node: str) -> PodPatch | None:
        found = self._call("pre_bind_patch", state, pod, node)
        if not (found is None or isinstance(found, PodPatch)):
            raise self._error("pre_bind_patch", f"returned {_kind(found)}, not a PodPatch or None")
        for what, values in zip(PodPatch._fields, found or (), strict=False):
            if not isinstance(values, Mapping):
                raise self._error("pre_bind_patch", f"has {_kind(values)} as {what}, not a mapping")
            for key, value in values.items():
                if not isinstance(key, str) or not isinstance(value, str | None):
                    raise self._error("pre_bind_patch", f"has {key!r}: {value!r} in {what}, which is no text")
        return found

    def _call(self, point: str, *arguments: object) -> Any:
        try:
            return getattr(self.plugin, point)(*arguments)
        except (Exception, SystemExit) as error:
            raise self._error(point, f"{type(error).__name__}: {error}", error) from error

    def _may(self, point: str, *arguments: object) -> bool:
        try:
            return bool(self._call(point, *arguments))
        except PluginError:
            return True

    def _error(self, point: str, why: str, cause: BaseException | None = None) -> PluginError:
        """Logs what has gone wrong at a point, unless that was the last thing that did."""
        error = PluginError(self.name, point, why)
        if self._told.get(point) != why:
            self._told[point] = why
            _log.warning("%s", error, exc_info=cause)
        return error

    def _sequence(self, point: str, found: Any) -> Sequence[Any]:
        if type(found) not in (list, tuple):  # a NamedTuple is one answer
            raise self._error(point, f"returned {_kind(found)}, not a list or tuple")
        return tuple(found)

    def _mask(self, point: str, found: Any, state: ClusterState) -> Bools:
        if not (isinstance(found, np.ndarray) and found.dtype == np.bool_ and found.shape == (state.length,)):
            raise self._error(point, f"returned {_kind(found)}, not bool[{state.length}]")
        return found

    def _rejection(self, found: Any, state: ClusterState) -> Rejection:
        if not isinstance(found, Rejection):
            raise self._error("rejections", f"has {_kind(found)} among the rejections")
        if not isinstance(found.reason, str) or not found.reason:
            raise self._error("rejections", f"has {found.reason!r} as a reason, which is no text")
        self._mask("rejections", found.rows, state)
        if not isinstance(found.is_resolvable, bool):
            self._mask("rejections", found.is_resolvable, state)
        return found

    def _score(self, point: str, found: Any) -> int | None:
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | np.integer) or not 0 <= found <= MOST_SCORE:
            raise self._error(point, f"gives the score {found!r}, which is not in 0..{MOST_SCORE}")
        return int(found)


def _kind(found: object) -> str:
    """Names what was returned, for people."""
    if isinstance(found, np.ndarray):
        return f"{found.dtype}[{', '.join(map(str, found.shape))}]"
    return type(found).__name__
