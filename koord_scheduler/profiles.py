"""Profiles of a KubeSchedulerConfiguration: by which plugins, with which arguments, the pods of one name are placed.

A plugin of ours takes part in at most two points, ``filter`` and ``score``. What upstream's do at other points belongs
to these here and cannot be switched off alone, of which a note tells. A plugin that is not ours is a user's, if one is
installed (`koord_scheduler.userplugins`), and is switched at each point that it has a method for. A plugin that there
is not yet is named in ``missing`` and left out, as if no profile had it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from koord.model.core import Slim
from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import WeightedPlugin, can_filter, can_prefer, can_score
from koord.scheduling.plugin import GANG, Plugin
from koord.scheduling.plugins.elasticquota import ElasticQuota
from koord.scheduling.plugins.koordinator import NodeResourcesFitPlus, ScarceResourceAvoidance
from koord.scheduling.plugins.loadaware import LoadAwareScheduling
from koord.scheduling.plugins.nodenumaresource import NodeNUMAResource
from koord.scheduling.plugins.resources import NodeResourcesFit
from koord.scheduling.plugins.schedulinghint import SchedulingHint
from koord.scheduling.preemption import CandidateCount
from koord_scheduler import pluginargs, pluginsets
from koord_scheduler.documentreader import DocumentReader
from koord_scheduler.options import NAME
from koord_scheduler.pluginargs import API_VERSION, CoschedulingSettings, Percent, VolumeBindingSettings
from koord_scheduler.pluginsets import (
    ALL,
    BIND,
    FILTER,
    MULTI_POINT,
    PERMIT,
    POINTS,
    POST_FILTER,
    PRE_BIND,
    PRE_ENQUEUE,
    PRE_FILTER,
    QUEUE_SORT,
    RESERVE,
    SCORE,
    PluginEntry,
    PluginSet,
    ResolvedPlugins,
)
from koord_scheduler.userplugins import UserPlugins

UPSTREAMS_NAME = "default-scheduler"
"""Of a file's only profile, if it does not say one."""
_PREEMPTION, _VOLUME_BINDING = "DefaultPreemption", "VolumeBinding"
_ORDER, _BINDER, _PATCHER = "PrioritySort", "DefaultBinder", "DefaultPreBind"
_WITH_ARGUMENTS = (_PREEMPTION, _VOLUME_BINDING, GANG)
"""Parts of the scheduler itself that take arguments."""
_PARTS = {
    "SchedulingGates": (PRE_ENQUEUE,),
    _ORDER: (QUEUE_SORT,),
    _PREEMPTION: (POST_FILTER, PRE_ENQUEUE),
    _PATCHER: (PRE_BIND,),
    _BINDER: (BIND,),
    GANG: (PRE_ENQUEUE, PRE_FILTER, POST_FILTER, SCORE, RESERVE, PERMIT, PRE_BIND, "preScore", "postBind"),
}
"""Plugins of upstream's that are parts of the scheduler itself here, and where they take part."""
# fmt: off
_MISSING = frozenset((
    "DynamicResources", "GangScheduling",
    "NodeDeclaredFeatures", "Reservation",
    "DeviceShare", "CompatibleDefaultPreemption",
))
# fmt: on
"""Upstream's and Koordinator's that there are not yet."""
_FILTER_POINTS = {SchedulingHint.name: PRE_FILTER, ElasticQuota.name: PRE_FILTER}
"""Where plugins that filter are switched, if not at ``filter``."""
_METHODS = {RESERVE: "reserve", PERMIT: "permit", PRE_BIND: "pre_bind_patch"}
"""What a plugin overrides to take part in these points."""
_SWITCHING_POINTS = (QUEUE_SORT, FILTER, POST_FILTER, SCORE, BIND)
"""Where a profile can switch plugins that are there."""
ALL_NODES = "all nodes are looked at"


@dataclass(frozen=True)
class Profile:
    """How the pods are placed that have ``name`` as ``spec.schedulerName``. ``preemption`` None: none makes room,
    but for pods of the same quota, if it ``preempts_in_quota``.
    ``coscheduling`` None: whatever gang a pod says that it is of, it is placed by itself.

    ``reserve``, ``permit``, ``pre_bind``: the plugins that take part there, in their order.
    """

    name: str = NAME
    plugins: tuple[WeightedPlugin, ...] = field(default_factory=default_plugins)
    preemption: CandidateCount | None = field(default_factory=CandidateCount)
    volume_binding: VolumeBindingSettings = field(default_factory=VolumeBindingSettings)
    preempts_in_quota: bool = False
    coscheduling: CoschedulingSettings | None = field(default_factory=CoschedulingSettings)
    reserve: tuple[Plugin, ...] = ()
    permit: tuple[Plugin, ...] = ()
    pre_bind: tuple[Plugin, ...] = ()


class ProfileDocument(Slim, frozen=True):
    scheduler_name: str | None = None
    percentage_of_nodes_to_score: Percent | None = None
    plugins: Any = None
    plugin_config: Any = None


class PluginConfig(Slim, frozen=True):
    name: str | None = None
    args: Any = None


class _Arguments(NamedTuple):
    """``document``, ``path``: of the arguments of one plugin."""

    document: object
    path: str


def read(document: object, path: str, reader: DocumentReader) -> tuple[Profile, ...]:
    """Returns the profiles in their order. Without any there is one of default plugins for pods of koord-scheduler."""
    items, users = reader.items(document, path), UserPlugins(reader)
    found: dict[str, Profile] = {}
    for place, item in items:
        said = reader.read(ProfileDocument, item, place)
        name = said.scheduler_name or (UPSTREAMS_NAME if len(items) == 1 else "")
        if not name or name in found:
            why = "is the name of an earlier profile" if name else "is no name: each of several profiles needs one"
            reader.wrong(f"{place}.schedulerName", name, why)
        reader.no_effect(f"{place}.percentageOfNodesToScore", said.percentage_of_nodes_to_score, ALL_NODES)
        found[name] = _ProfileReader(said, place, reader, users).profile(name)
        _check_quotas(found, name, f"{place}.pluginConfig", reader)
    return tuple(found.values()) or (Profile(),)


def _check_quotas(profiles: Mapping[str, Profile], name: str, path: str, reader: DocumentReader) -> None:
    """There is one state of quotas: tells of a profile that wants them counted otherwise than an earlier one."""
    plugins = [each.plugin for profile in profiles.values() for each in profile.plugins]
    counted = [each.counting for each in plugins if isinstance(each, ElasticQuota)]
    if any(each != counted[0] for each in counted):
        reader.wrong(path, name, f"has other arguments of {ElasticQuota.name} than an earlier profile")


def without(resources: frozenset[str], profile: Profile) -> Profile:
    """Returns the profile as one that does not look whether nodes have enough of these resources."""
    if not resources:
        return profile
    plugins = [
        each._replace(plugin=replace(each.plugin, ignored=each.plugin.ignored | resources))
        if isinstance(each.plugin, NodeResourcesFit)
        else each
        for each in profile.plugins
    ]
    return replace(profile, plugins=tuple(plugins))


class _ProfileReader:
    def __init__(self, document: ProfileDocument, path: str, reader: DocumentReader, users: UserPlugins) -> None:
        self._path, self._reader, self._users = path, reader, users
        self._made: dict[str, Plugin] = {each.plugin.name: each.plugin for each in default_plugins()}
        added = (
            NodeResourcesFitPlus(),
            ScarceResourceAvoidance(),
            SchedulingHint(),
            ElasticQuota(),
            LoadAwareScheduling(),
            NodeNUMAResource(),
        )
        for plugin in added:
            self._made[plugin.name] = plugin
        self._ours = frozenset(self._made)
        self._tried: set[str] = set()
        self._arguments = self._read_arguments(document.plugin_config, f"{path}.pluginConfig")
        self._sets = self._read_sets(document.plugins, f"{path}.plugins")

    def profile(self, name: str) -> Profile:
        none, reader = _Arguments(None, ""), self._reader
        count = pluginargs.read_preemption(*self._arguments.get(_PREEMPTION, none), reader)
        volumes = pluginargs.read_volume_binding(*self._arguments.get(_VOLUME_BINDING, none), reader)
        gangs = pluginargs.read_coscheduling(*self._arguments.get(GANG, none), reader)
        resolved = pluginsets.resolve(self._sets, list(self._defaults()), self._extends)
        self._check_parts(resolved.by_point)
        by_method = {point: self._extending(resolved, point) for point in _METHODS}
        filters = self._extending(resolved, PRE_FILTER, FILTER)
        scores = [each for each in resolved.by_point[SCORE] if each in self._made]
        self._note_useless({*filters, *scores, *[each for names in by_method.values() for each in names]})
        plugins = []
        for each in dict.fromkeys((*filters, *scores)):
            plugin = self._made[each]
            weight = resolved.weights[each] if each in scores else int(not can_score(plugin))
            plugins.append(WeightedPlugin(plugin, weight, each in filters or not _can_select(plugin)))
        return Profile(
            name,
            tuple(plugins),
            count if _PREEMPTION in resolved.by_point[POST_FILTER] else None,
            volumes,
            ElasticQuota.name in resolved.by_point[POST_FILTER],
            gangs if GANG in resolved.by_point[PERMIT] else None,
            *[tuple([self._made[each] for each in by_method[point]]) for point in (RESERVE, PERMIT, PRE_BIND)],
        )

    def _extending(self, resolved: ResolvedPlugins, *points: str) -> list[str]:
        """Returns the names of the plugins that take part in these points."""
        return [
            name
            for point in points
            for name in resolved.by_point[point]
            if name in self._made and self._extends(name, point)
        ]

    def _defaults(self) -> Iterator[PluginEntry]:
        for each in default_plugins():
            yield PluginEntry(each.plugin.name, each.weight)
        for name in _PARTS:
            yield PluginEntry(name)

    def _extends(self, name: str, point: str) -> bool:
        plugin = self._made.get(name)
        if plugin is None:
            return point in _PARTS.get(name, ())
        if (name, point) == (ElasticQuota.name, POST_FILTER):
            return True
        if point == _FILTER_POINTS.get(name, FILTER):
            return _can_select(plugin)
        return (point == SCORE and can_score(plugin)) or (point in _METHODS and plugin.overrides(_METHODS[point]))

    def _is_known(self, name: str, path: str, is_needed: bool = True) -> bool:
        """Returns whether the plugin is ours, or a user's, which is made unless it is not needed.

        Tells of one that there is not, and of one that there is not yet.
        """
        if name in self._made or name in _PARTS:
            return True
        if self._users.is_offered(name):
            return not is_needed or self._make_users(name, _Arguments(None, path), path)
        if name in _MISSING:
            self._reader.missing[name] = None
        else:
            self._reader.wrong(path, name, "is no plugin that there is")
        return False

    def _make_users(self, name: str, arguments: _Arguments, path: str) -> bool:
        """Returns whether the plugin could be made. ``path``: what names it."""
        if name not in self._tried:
            self._tried.add(name)
            found = self._users.load(name, path)
            plugin = None if found is None else self._users.make(found, *arguments)
            if plugin is not None:
                self._made[name] = plugin
        return name in self._made

    def _read_sets(self, document: object, path: str) -> dict[str, PluginSet]:
        if document is None:
            return {}
        if not isinstance(document, Mapping):
            self._reader.wrong(path, document, "is not an object")
            return {}
        found = {}
        for point, said in document.items():
            place = f"{path}.{point}"
            if point not in (MULTI_POINT, *POINTS):
                self._reader.wrong(place, point, "is no extension point")
                continue
            found[point] = self._reader.read(PluginSet, said, place)
            self._check_set(point, found[point], place)
        return found

    def _check_set(self, point: str, plugins: PluginSet, path: str) -> None:
        names = [each.name for each in plugins.enabled]
        for index, name in enumerate(names):
            place = f"{path}.enabled[{index}].name"
            if name in names[:index]:
                self._reader.wrong(place, name, "is enabled twice")
            elif (
                self._is_known(name, place)
                and (point in (PRE_ENQUEUE, *_SWITCHING_POINTS) or self._is_switched(name, point))
                and not (self._extends(name, point) or (name, point) == (GANG, QUEUE_SORT))
            ):
                self._reader.wrong(place, name, f"does nothing at {point}")
        for index, each in enumerate(plugins.disabled):
            if each.name != ALL:
                self._is_known(each.name, f"{path}.disabled[{index}].name", False)

    def _read_arguments(self, document: object, path: str) -> dict[str, _Arguments]:
        found: dict[str, _Arguments] = {}
        for place, item in self._reader.items(document, path):
            said = self._reader.read(PluginConfig, item, place)
            name, arguments = said.name or "", said.args
            if name in found:
                self._reader.wrong(f"{place}.name", name, "has its arguments before")
            elif self._is_known(name, f"{place}.name", False):
                self._check_kind(name, arguments, f"{place}.args")
                found[name] = _Arguments(arguments, f"{place}.args")
                self._make(name, found[name], f"{place}.name")
        return found

    def _check_kind(self, name: str, document: object, path: str) -> None:
        if not isinstance(document, Mapping):
            return
        for key, wanted in (("kind", f"{name}Args"), ("apiVersion", API_VERSION)):
            said = document.get(key)
            if said not in (None, "", wanted) and (key == "kind" or name in self._ours or name in _PARTS):
                self._reader.wrong(f"{path}.{key}", said, f"is not {wanted}")

    def _make(self, name: str, arguments: _Arguments, path: str) -> None:
        document, place = arguments
        if name in pluginargs.PLUGINS:
            self._made[name] = pluginargs.PLUGINS[name](document, place, self._reader)
        elif name not in self._ours and name not in _PARTS:
            self._make_users(name, arguments, path)
        elif document and name not in _WITH_ARGUMENTS:
            self._reader.wrong(place, document, f"is given to {name}, which takes no arguments")

    def _is_users(self, name: str) -> bool:
        return name in self._made and name not in self._ours

    def _check_parts(self, by_point: Mapping[str, Sequence[str]]) -> None:
        """Pods have one order, and are bound by us, whatever plugins that there are not yet would do."""
        orders = by_point[QUEUE_SORT]
        if len(orders) != 1 or (orders[0] not in (_ORDER, GANG) and orders[0] not in _MISSING):
            self._reader.wrong(f"{self._path}.plugins.{QUEUE_SORT}", ", ".join(orders), f"is not {_ORDER} alone")
        if _BINDER not in by_point[BIND]:
            self._reader.wrong(f"{self._path}.plugins.{BIND}", ", ".join(by_point[BIND]), f"lacks {_BINDER}")
        patching = [name for name in by_point[PRE_BIND] if name in self._made and self._extends(name, PRE_BIND)]
        if patching and _PATCHER not in by_point[PRE_BIND] and self._is_disabled(_PATCHER, MULTI_POINT, PRE_BIND):
            why = f"needs {_PATCHER}, which is disabled and writes what plugins want on pods"
            self._reader.wrong(f"{self._path}.plugins.{PRE_BIND}", ", ".join(patching), why)

    def _is_disabled(self, name: str, *points: str) -> bool:
        """Returns whether the plugin is disabled by its name."""
        return any(each.name == name for point in points for each in self._sets.get(point, PluginSet()).disabled)

    def _note_useless(self, taking_part: Collection[str]) -> None:
        """Tells of what is said of our plugins at points where they are not switched, and otherwise than there."""
        for name, (_, path) in self._arguments.items():
            if name in self._made and name not in taking_part:
                self._reader.no_effect(f"{path.removesuffix('.args')}.name", name, "it is not enabled")
        for point, plugins in self._sets.items():
            if point == MULTI_POINT or point in _SWITCHING_POINTS:
                continue
            for kind, entries, is_on in (("enabled", plugins.enabled, True), ("disabled", plugins.disabled, False)):
                for index, each in enumerate(entries):
                    if self._is_switched(each.name, point):
                        continue
                    if (each.name in self._made and (each.name in taking_part) is not is_on) or (
                        point == PRE_ENQUEUE and each.name in _PARTS and not is_on
                    ):
                        path = f"{self._path}.plugins.{point}.{kind}[{index}].name"
                        self._reader.no_effect(path, each.name, f"it is not switched at {point}")

    def _is_switched(self, name: str, point: str) -> bool:
        """Returns whether a profile can switch the plugin at the point, beside those where it can switch all."""
        if _FILTER_POINTS.get(name) == point:
            return True
        return point in _METHODS and (self._is_users(name) or (name in self._ours and self._extends(name, point)))


def _can_select(plugin: Plugin) -> bool:
    return can_filter(plugin) or can_prefer(plugin)
