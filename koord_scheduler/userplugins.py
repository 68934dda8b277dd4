"""Plugins that are not ours: an installed package offers each as an entry point of the group GROUP, by its name.

The entry point is a subclass of `koord.scheduling.plugin.Plugin`. If it has a member ``Args``, a msgspec struct, the
plugin is made of its arguments as that reads them, and of nothing otherwise. Only what a configuration names is
imported; whatever goes wrong with that is a problem of the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

import msgspec

from koord.model.schema import clip
from koord.scheduling.plugin import Plugin, Scope
from koord_scheduler.documentreader import DocumentReader
from koord_scheduler.pluginguard import guarded

GROUP = "koord.scheduler.plugins"
TYPE_MEMBERS = ("apiVersion", "kind")
"""Of arguments: what they are, which upstream's files say."""
_METHODS = ("filter", "rejections", "preferred_nodes", "score", "reserve", "permit", "pre_bind_patch")
"""A plugin has at least one of these."""
PluginType = type[Plugin]


class UserPlugins:
    """``reader``: is told what is wrong, once for each plugin."""

    def __init__(self, reader: DocumentReader) -> None:
        self._reader = reader
        self._offered: dict[str, list[EntryPoint]] | None = None
        self._loaded: dict[str, PluginType | None] = {}

    def is_offered(self, name: str) -> bool:
        return bool(self._entry_points(name))

    def load(self, name: str, path: str) -> PluginType | None:
        """Returns the class of the plugin; None where it cannot be used, which ``path``, that names it, is told of."""
        if name not in self._loaded:
            self._loaded[name] = self._load(name, path)
        return self._loaded[name]

    def make(self, found: PluginType, document: object, path: str) -> Plugin | None:
        """Returns the plugin that ``document``, its arguments at ``path``, says; None where it cannot be made."""
        wanted = getattr(found, "Args", None)
        if isinstance(document, Mapping):
            document = {key: value for key, value in document.items() if key not in TYPE_MEMBERS}
        try:
            if wanted is None:
                if document:
                    self._reader.wrong(path, document, f"is given to {found.name}, which takes no arguments")
                    return None
                made = found()
            else:
                args = self._reader.read_or_none(wanted, document, path)
                if args is None:
                    return None
                made = found(args)  # type: ignore[call-arg] # as its class wants it
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's code raises what it likes
            self._reader.wrong(path, document, f"cannot be used by {found.name}: {_told(error)}")
            return None
        if not made.overrides(*_METHODS):
            self._reader.wrong(path, document, f"is for {found.name}, which has none of {', '.join(_METHODS)}")
            return None
        return guarded(made)

    def _entry_points(self, name: str) -> list[EntryPoint]:
        if self._offered is None:
            self._offered = {}
            for each in entry_points(group=GROUP):
                self._offered.setdefault(each.name, []).append(each)
        return self._offered.get(name, [])

    def _load(self, name: str, path: str) -> PluginType | None:
        offered = self._entry_points(name)
        if len(offered) > 1:
            both = " and ".join(sorted(_source(each) for each in offered))
            self._reader.wrong(path, name, f"is offered by {both}: one can be installed")
            return None
        (entry,) = offered
        try:
            found = entry.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's code raises what it likes
            self._reader.wrong(path, name, f"cannot be imported from {_source(entry)}: {_told(error)}")
            return None
        why = _unfit(found, name)
        if why:
            self._reader.wrong(path, name, f"cannot be used from {_source(entry)}: {why}")
            return None
        assert isinstance(found, type)
        return found


def _unfit(found: object, name: str) -> str:
    """Returns why the object is not the plugin ``name``; "" if it is."""
    if not (isinstance(found, type) and issubclass(found, Plugin)):
        return f"{clip(found)} is no subclass of {Plugin.__module__}.{Plugin.__name__}"
    if (said := getattr(found, "name", None)) != name:
        return f"its name is {clip(said)}"
    wanted = getattr(found, "Args", None)
    if not (wanted is None or (isinstance(wanted, type) and issubclass(wanted, msgspec.Struct))):
        return f"its Args, {clip(wanted)}, is no msgspec.Struct"
    if not all(isinstance(each, Scope) for each in (found.filter_scope, found.score_scope)):
        return "its filter_scope or score_scope is no Scope"
    return ""


def _source(entry: EntryPoint) -> str:
    """``distribution (module:attribute)``."""
    return f"{entry.dist.name if entry.dist else 'a package'} ({entry.value})"


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
