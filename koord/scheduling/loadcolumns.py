"""The load of all nodes by one profile's settings, in columns, and what each node's figures are made of.

What a node uses is measured now and then, and a pod uses little at first. So a pod that came after the measurement, or
less than a report's interval before it, or is not in it, counts with an estimate of its own, as far as that is more
than what was measured of it. Each pod and each measurement changes one row.

Invariant: a row is what the node, its measurements and its pods make of it, in whatever order they came.
Sources: Koordinator, pkg/scheduler/plugins/loadaware.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from koord.scheduling import podestimate
from koord.scheduling.loadfacts import LoadFacts, Measurements
from koord.scheduling.loadsettings import LoadSettings, Percents, Thresholds, WindowChoice
from koord.scheduling.nodeusage import NodeUsage
from koord.scheduling.podestimate import Estimate
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.table import Bools, Int64s, Table

UNBOUNDED = 2**56
"""More than any node has or uses; a hundred times it is still an int64."""
_MOST_ESTIMATES = 1024
_NEVER_S, _FOREVER_S = float("-inf"), float("inf")


class _View:
    """Columns for one sort of pod, each with an element for each resource of the settings.

    ``used``: what a filter goes by; ``limit``: the most that it may be with the pod. ``scored``: what a score goes by;
    ``UNBOUNDED``: the node is not scored.
    """

    def __init__(self, table: Table, count: int) -> None:
        self.used = [table.column(np.int64) for _ in range(count)]
        self.limit = [table.column(np.int64, UNBOUNDED) for _ in range(count)]
        self.scored = [table.column(np.int64, UNBOUNDED) for _ in range(count)]
        self.expired, self.by_window = table.column(np.bool_, False), table.column(np.bool_, False)

    def room(self, row: int) -> list[int]:
        """What a pod may use at most, of each resource."""
        return [int(limit.values[row] - used.values[row]) for limit, used in zip(self.limit, self.used, strict=True)]

    def add(self, row: int, used: Sequence[int], scored: Sequence[int]) -> None:
        """Adds to what counts as used. (What is ``UNBOUNDED`` stays above all that a node has.)"""
        for columns, parts in ((self.used, used), (self.scored, scored)):
            for column, part in zip(columns, parts, strict=True):
                if part:
                    column.values[row] += part


class Figure(NamedTuple):
    """One figure of a node. ``measured``: by the resource; None where the window is not there."""

    usage: NodeUsage
    measured: Mapping[str, int] | None
    is_by_window: bool = False

    @property
    def is_empty(self) -> bool:
        """Returns whether the agent has measured nothing yet."""
        return self.usage.node is None

    def amount(self, resource: str) -> int:
        return 0 if self.measured is None else self.measured.get(resource, 0)


class RowFigures(NamedTuple):
    """What a node's columns hold for one sort of pod, each of all resources."""

    capacity: list[int]
    used: list[int]
    limit: list[int]
    scored: list[int]
    is_expired: bool
    is_by_window: bool


class RowLoad:
    """A node's figures. ``filtered``, ``of_prod``, ``scored``: None: it is not measured, or the figure is not needed.
    ``anomaly``: why it scores nothing. ``parts``: what each pod adds to the three, one after the other, by uid.
    """

    __slots__ = ("anomaly", "filtered", "of_prod", "parts", "scored", "thresholds")

    def __init__(self, thresholds: Thresholds) -> None:
        self.thresholds, self.anomaly = thresholds, ""
        self.filtered: Figure | None = None
        self.of_prod: Figure | None = None
        self.scored: Figure | None = None
        self.parts: dict[str, tuple[int, ...]] = {}


class LoadColumns:
    """The load of all nodes by one profile's settings."""

    def __init__(self, settings: LoadSettings, facts: LoadFacts, table: Table) -> None:
        self.settings, self._facts, self._table = settings, facts, table
        self.resources = settings.resources
        self._count = len(self.resources)
        self._nothing, self._no_parts = (0,) * self._count, (0,) * (3 * self._count)
        self._capacity = [table.column(np.int64, 1) for _ in range(self._count)]
        self._others, self._prods = _View(table, self._count), _View(table, self._count)
        self._expires_s = table.column(np.float64, _FOREVER_S)
        self._next_expiry_s = _FOREVER_S
        self.rows: dict[int, RowLoad] = {}
        self._estimates: dict[bytes, Estimate] = {}
        self._largest = [0] * self._count
        """Of each resource, the most that a pod which was to be placed was estimated to use."""

    # what a plugin reads

    def capacity(self, index: int) -> Int64s:
        """int64[N]: what the node has of the resource of this place, which load is a part of; 1 of one without it,
        which is neither filtered nor scored by it.
        """
        return self._capacity[index].values[: self._table.length]

    def used(self, index: int, is_prod: bool) -> Int64s:
        """int64[N]: what counts as used of the resource of this place, for a pod of koord-prod or another."""
        return self._view(is_prod).used[index].values[: self._table.length]

    def limit(self, index: int, is_prod: bool) -> Int64s:
        """int64[N]: the most that may count as used with the pod; -1: the measurement has expired."""
        return self._view(is_prod).limit[index].values[: self._table.length]

    def scored(self, index: int, is_prod: bool) -> Int64s:
        """int64[N]: what scores count as used; ``UNBOUNDED`` of a node without a measurement that holds."""
        return self._view(is_prod).scored[index].values[: self._table.length]

    def expired(self, is_prod: bool) -> Bools:
        """bool[N]: whether the node is rejected because its measurement has expired."""
        return self._view(is_prod).expired.values[: self._table.length]

    def by_window(self, is_prod: bool) -> Bools:
        """bool[N]: whether the node's thresholds are for what was used over a window."""
        return self._view(is_prod).by_window.values[: self._table.length]

    def at(self, row: int, is_prod: bool) -> RowFigures:
        """Returns the same of one node."""
        view = self._view(is_prod)
        columns = self._capacity, view.used, view.limit, view.scored
        capacity, used, limit, scored = [[int(column.values[row]) for column in each] for each in columns]
        is_expired, is_by_window = bool(view.expired.values[row]), bool(view.by_window.values[row])
        return RowFigures(capacity, used, limit, scored, is_expired, is_by_window)

    def estimate(self, pod: PodInfo) -> Estimate:
        """Returns what the pod is going to use."""
        found = self._estimates.get(pod.signature)
        if found is None:
            if len(self._estimates) >= _MOST_ESTIMATES:
                del self._estimates[next(iter(self._estimates))]
            found = self._estimates[pod.signature] = podestimate.of(pod, self.settings)
        return found

    def for_placing(self, pod: PodInfo) -> tuple[int, ...]:
        """Returns the estimate's amounts of a pod that is to be placed."""
        amounts = self.estimate(pod).amounts
        self._largest = list(map(max, self._largest, amounts))
        return amounts

    def _view(self, is_prod: bool) -> _View:
        return self._prods if is_prod else self._others

    # what changes rows

    def renew(self, row: int) -> bool:
        """The node, or a measurement of it, is another one. Returns whether pods may be helped that the node was too
        loaded for.
        """
        name, thresholds = self._table.name(row), self._thresholds_of(row)
        load = RowLoad(thresholds)
        self._choose_figures(load, self._facts.measurements(name))
        if load.scored is not None:
            for pod in self._facts.pods_on(name):
                self._count_pod(load, pod)
        self.rows[row] = load
        for index, resource in enumerate(self.resources):
            self._capacity[index].values[row] = max(1, self._facts.capacity(row, resource))
        before = [view.room(row) for view in (self._others, self._prods)]
        self._write(row, load)
        after = [view.room(row) for view in (self._others, self._prods)]
        return any(self._may_help(*pair) for pair in zip(before, after, strict=True))

    def forget(self, row: int) -> None:
        """The row is no node's any more; the table clears its columns."""
        self.rows.pop(row, None)

    def put_pod(self, row: int, pod: PodInfo) -> bool:
        """The pod is on the node, or is another one now. Returns whether it changes anything."""
        load = self.rows.get(row)
        if load is None or load.scored is None:
            return False
        before = load.parts.pop(pod.uid, None)
        after = self._count_pod(load, pod)
        if before == after:
            return False
        self._add(row, load, after or self._no_parts)
        self._add(row, load, before or self._no_parts, -1)
        return True

    def remove_pod(self, row: int, pod: PodInfo) -> None:
        load = self.rows.get(row)
        parts = None if load is None else load.parts.pop(pod.uid, None)
        if load is not None and parts is not None:
            self._add(row, load, parts, -1)

    def expired_rows(self) -> list[int]:
        """Returns the rows of which a measurement has expired since it was asked before; they are to be renewed."""
        now_s = self._facts.now_s
        if now_s < self._next_expiry_s:
            return []
        expires_s = self._expires_s.values[: self._table.length]
        found: list[int] = np.flatnonzero(expires_s <= now_s).tolist()
        left = expires_s[expires_s > now_s]
        self._next_expiry_s = float(left.min()) if len(left) else _FOREVER_S
        return found

    # figures

    def _choose_figures(self, load: RowLoad, found: Measurements) -> None:
        load.filtered = _figure(found, load.thresholds.window)
        load.scored = _figure(found, self.settings.score_window)
        load.anomaly = found.anomaly
        if found.newest is not None and (load.thresholds.prod or self.settings.scores_prod):
            load.of_prod = Figure(found.newest, found.newest.system if self.settings.prod_includes_system else {})

    def _count_pod(self, load: RowLoad, pod: PodInfo) -> tuple[int, ...] | None:
        """Notes and returns what the pod adds to the figures; None: nothing."""
        filtered = self._part(load.filtered, pod)
        scored = filtered if load.scored == load.filtered else self._part(load.scored, pod)
        of_prod = self._part_of_prod(load.of_prod, pod)
        if filtered is of_prod is scored is self._nothing:  # as of most pods
            return None
        parts = (*filtered, *of_prod, *scored)
        if not any(parts):
            return None
        load.parts[pod.uid] = parts
        return parts

    def _part(self, figure: Figure | None, pod: PodInfo) -> tuple[int, ...]:
        """What the pod adds to what was measured: all of its estimate, where the window is not there."""
        if figure is None or figure.is_empty:
            return self._nothing
        if figure.measured is None:
            return self.estimate(pod).amounts
        usage = figure.usage
        reported = usage.pods.get(pod.key)
        if reported is None:
            return self.estimate(pod).amounts
        if not self._is_estimated(usage, pod):
            return self._nothing
        estimated = self.estimate(pod).amounts
        return tuple([max(0, each - reported.of(name)) for name, each in zip(self.resources, estimated, strict=True)])

    def _part_of_prod(self, figure: Figure | None, pod: PodInfo) -> tuple[int, ...]:
        """What the pod adds to what pods of koord-prod use: what was measured of it, or its estimate if that is more
        and counts.
        """
        if figure is None or figure.is_empty or not pod.is_prod:
            return self._nothing
        reported = figure.usage.pods.get(pod.key)
        if reported is None or reported.is_prod is False:
            return self.estimate(pod).amounts
        measured = tuple([reported.of(name) for name in self.resources])
        if not self._is_estimated(figure.usage, pod):
            return measured
        return tuple([max(pair) for pair in zip(measured, self.estimate(pod).amounts, strict=True)])

    def _is_estimated(self, usage: NodeUsage, pod: PodInfo) -> bool:
        """Returns whether the estimate of a pod counts that was measured."""
        settings, since_s = self.settings, self._facts.placed_s(pod)
        if since_s > usage.measured_s - usage.report_interval_s:
            return True
        after_s, initialized_after_s = settings.seconds_after_scheduled, settings.seconds_after_initialized
        if settings.may_be_customized:
            _, after_s, initialized_after_s = self.estimate(pod)
        if initialized_after_s is not None and pod.initialized_s is not None:
            return pod.initialized_s + initialized_after_s > usage.measured_s
        return after_s is not None and since_s + after_s > usage.measured_s

    # columns

    def _thresholds_of(self, row: int) -> Thresholds:
        """Each section that the node has for itself takes the place of that of the settings."""
        default, own = self.settings.thresholds, self._facts.thresholds(row)
        if own is None:
            return default
        usage, window = default.usage, default.window
        if own.aggregated:
            usage, window = own.aggregated, own.window
        elif own.usage and window is None:
            usage = own.usage
        return Thresholds(usage, window, own.prod or default.prod)

    def _write(self, row: int, load: RowLoad) -> None:
        thresholds = load.thresholds
        by_prod = (load.of_prod, thresholds.prod) if thresholds.prod else (load.filtered, thresholds.usage)
        for view, (filtered, limits), scored in (
            (self._others, (load.filtered, thresholds.usage), load.scored),
            (self._prods, by_prod, load.of_prod if self.settings.scores_prod else load.scored),
        ):
            self._write_filtered(view, row, filtered, limits)
            self._write_scored(view, row, None if load.anomaly else scored)
        for parts in load.parts.values():
            self._add(row, load, parts)
        self._note_expiry(row, load)

    def _add(self, row: int, load: RowLoad, parts: Sequence[int], sign: int = 1) -> None:
        """Adds what a pod adds to the three figures, to all columns."""
        if sign < 0:
            parts = [-part for part in parts]
        count = self._count
        filtered, of_prod, scored = parts[:count], parts[count : 2 * count], parts[2 * count :]
        self._others.add(row, filtered, scored)
        self._prods.add(
            row, of_prod if load.thresholds.prod else filtered, of_prod if self.settings.scores_prod else scored
        )

    def _write_filtered(self, view: _View, row: int, figure: Figure | None, thresholds: Percents) -> None:
        by_resource = {name: percent for name, percent in thresholds if percent}
        is_rejected = False
        if figure is not None and self._is_expired(figure) and self.settings.filters_expired:
            is_rejected = bool(by_resource) and not self.settings.passes_when_expired
            by_resource = {}
        view.expired.values[row] = is_rejected
        view.by_window.values[row] = figure is not None and figure.is_by_window
        for index, resource in enumerate(self.resources):
            capacity, percent = int(self._capacity[index].values[row]), by_resource.get(resource, 0)
            limit = -1 if is_rejected else UNBOUNDED
            if figure is not None and not figure.is_empty and percent and capacity > 1:
                limit = ((2 * percent + 1) * capacity - 1) // 200  # the most whose percentage is rounded to no more
            view.used[index].values[row] = 0 if figure is None else figure.amount(resource)
            view.limit[index].values[row] = limit

    def _write_scored(self, view: _View, row: int, figure: Figure | None) -> None:
        is_scored = figure is not None and not figure.is_empty and not self._is_expired(figure)
        for index, resource in enumerate(self.resources):
            has_any = is_scored and self._capacity[index].values[row] > 1
            view.scored[index].values[row] = figure.amount(resource) if figure is not None and has_any else UNBOUNDED

    def _is_expired(self, figure: Figure) -> bool:
        return self._facts.now_s >= self._end_s(figure)

    def _end_s(self, figure: Figure) -> float:
        """When what was measured expires."""
        if figure.usage.measured_s == _NEVER_S:
            return _NEVER_S
        return figure.usage.measured_s + self.settings.expires_after_s if self.settings.expires_after_s else _FOREVER_S

    def _note_expiry(self, row: int, load: RowLoad) -> None:
        ends_s = [self._end_s(each) for each in (load.filtered, load.of_prod, load.scored) if each is not None]
        expires_s = min([each for each in ends_s if each > self._facts.now_s], default=_FOREVER_S)
        self._expires_s.values[row] = expires_s
        self._next_expiry_s = min(self._next_expiry_s, expires_s)

    def _may_help(self, before: list[int], after: list[int]) -> bool:
        """Returns whether a pod may fit that did not, by the load: no pod that was looked at uses more than the
        largest.
        """
        return (
            any(room < most for room, most in zip(before, self._largest, strict=True))
            and any(now > then for then, now in zip(before, after, strict=True))
            and all(room >= 0 for room in after)
        )


def _figure(found: Measurements, window: WindowChoice | None) -> Figure | None:
    """Windows are the NodeMetric's; a node without one is judged by what it uses now."""
    by = found.newest if window is None else found.metric or found.newest
    if by is None:
        return None
    if window is None:
        return Figure(by, by.node)
    return Figure(by, by.over(window.aggregation, window.duration_ns), True)
