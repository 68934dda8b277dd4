"""Which plugins a profile has at which extension point, in which order: the defaults, and what the profile says.

As upstream: first the profile's ``multiPoint`` is laid over the default one, where a default plugin that is named again
keeps its place. Then each point gets, in this order, what it names itself and ``multiPoint`` has, too; the rest of
``multiPoint``; the rest of what it names itself. What a point disables it does not get from ``multiPoint``; ``*`` is
all. A point that names a plugin says its weight, too.

Sources: pkg/scheduler/apis/config/v1/default_plugins.go, pkg/scheduler/framework/runtime/framework.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec

from koord.model.core import Slim

MULTI_POINT, ALL = "multiPoint", "*"
PRE_ENQUEUE, QUEUE_SORT, FILTER, POST_FILTER = "preEnqueue", "queueSort", "filter", "postFilter"
PRE_FILTER, SCORE, RESERVE, PERMIT, PRE_BIND, BIND = "preFilter", "score", "reserve", "permit", "preBind", "bind"
POINTS = (
    *(PRE_ENQUEUE, QUEUE_SORT, PRE_FILTER, FILTER, POST_FILTER, "preScore", SCORE),
    *(RESERVE, PERMIT, PRE_BIND, BIND, "postBind"),
)


class PluginEntry(Slim, frozen=True):
    name: str
    weight: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0
    """0: not said."""


class PluginSet(Slim, frozen=True):
    enabled: tuple[PluginEntry, ...] = ()
    disabled: tuple[PluginEntry, ...] = ()


class ResolvedPlugins(NamedTuple):
    """``by_point``: names, in their order. ``weights``: of the scores of all that are named anywhere."""

    by_point: Mapping[str, Sequence[str]]
    weights: Mapping[str, int]


def resolve(
    own: Mapping[str, PluginSet], defaults: Sequence[PluginEntry], extends: Callable[[str, str], bool]
) -> ResolvedPlugins:
    """``own``: what the profile says, by point. ``extends``: whether a plugin takes part in a point: name, point."""
    multi_point = _merged(defaults, own.get(MULTI_POINT, PluginSet()))
    names = list(dict.fromkeys(each.name for each in multi_point))
    by_point = {}
    for point in POINTS:
        plugins = own.get(point, PluginSet())
        by_point[point] = _expanded([name for name in names if extends(name, point)], plugins)
    scored = own.get(SCORE, PluginSet()).enabled
    weights = {each.name: each.weight or 1 for each in (*reversed(multi_point), *reversed(scored))}
    return ResolvedPlugins(by_point, weights)


def _merged(defaults: Sequence[PluginEntry], own: PluginSet) -> list[PluginEntry]:
    disabled, enabled = {each.name for each in own.disabled}, {each.name: each for each in own.enabled}
    kept = [] if ALL in disabled else [each for each in defaults if each.name not in disabled]
    found = [enabled.get(each.name, each) for each in kept]
    replaced = {each.name for each in kept}
    return found + [each for each in own.enabled if each.name not in replaced]


def _expanded(multi_point: Sequence[str], own: PluginSet) -> list[str]:
    disabled = {each.name for each in own.disabled}
    enabled = list(dict.fromkeys(each.name for each in own.enabled))
    if ALL in disabled:
        return enabled
    inherited = [name for name in multi_point if name not in disabled]
    first = [name for name in enabled if name in inherited]
    return [
        *first,
        *[name for name in inherited if name not in enabled],
        *[name for name in enabled if name not in inherited],
    ]
