"""Plugins of installed packages: which a configuration gets, with which arguments, and what is told of a bad one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from koord_scheduler import component
from koord_scheduler.profiles import Profile
from tests.koord_scheduler.installedplugins import PREFIX, Site
from tests.koord_scheduler.test_configuration import named, plugin_set, problems, read

SOURCE = """
    import msgspec
    import numpy as np
    from koord.scheduling.plugin import Plugin, PodPatch, Scope

    class Args(msgspec.Struct, frozen=True, rename="camel"):
        most_watts: int
        racks: tuple[str, ...] = ()

    class Watts(Plugin):
        name = "Watts"
        filter_scope = Scope.PODS
        Args = Args

        def __init__(self, args):
            if args.most_watts < 1:
                raise ValueError("mostWatts must be more than 0")
            self.args = args

        def filter(self, state, pod):
            return None

        def score(self, state, pod, feasible):
            return 7

        def pre_bind_patch(self, state, pod, node):
            return None

    class Holder(Plugin):
        name = "Holder"

        def reserve(self, state, pod, node):
            pass

        def permit(self, state, pod, node):
            return None

    class Prefers(Plugin):
        name = "Prefers"

        def preferred_nodes(self, state, pod):
            return ()

    class Idle(Plugin):
        name = "Idle"

    class Misnamed(Plugin):
        name = "Other"

    class Nameless(Plugin):
        pass

    class Untyped(Plugin):
        name = "Untyped"
        Args = dict

    class Scoped(Plugin):
        name = "Scoped"
        filter_scope = "PODS"

    class Leaves(Plugin):
        name = "Leaves"

        def __init__(self):
            raise SystemExit("no more")

    def function(args):
        return Watts(args)
"""
NAMES = ("Watts", "Holder", "Prefers", "Idle", "Misnamed", "Nameless", "Untyped", "Scoped", "Leaves")
WATTS = {"name": "Watts", "args": {"mostWatts": 300}}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    found = Site(tmp_path, monkeypatch)
    found.install("power", SOURCE, **{name: name for name in NAMES}, Function="function", Gone="Absent")
    return found


def only(plugins: Any, config: Sequence[Any] = ()) -> Profile:
    (profile,) = read(profiles=[{"plugins": plugins, "pluginConfig": list(config)}]).profiles
    return profile


def points(profile: Profile, name: str) -> dict[str, Any]:
    """Where the plugin takes part, with its weight at ``score``."""
    found: dict[str, Any] = {}
    for plugin, weight, filters in profile.plugins:
        if plugin.name == name:
            found |= {"filter": filters and plugin.overrides("filter", "rejections", "preferred_nodes")}
            found |= {"score": weight if plugin.overrides("score") else 0}
    for point in ("reserve", "permit", "pre_bind"):
        if name in [each.name for each in getattr(profile, point)]:
            found[point] = True
    return found


@pytest.mark.parametrize(
    ("plugins", "config", "name", "taking_part"),
    [
        ({"multiPoint": plugin_set(["Watts=3"])}, [WATTS], "Watts", {"filter": True, "score": 3, "pre_bind": True}),
        ({"filter": plugin_set(["Watts"])}, [WATTS], "Watts", {"filter": True, "score": 0}),
        ({"score": plugin_set(["Watts=5"])}, [WATTS], "Watts", {"filter": False, "score": 5}),
        ({"preBind": plugin_set(["Watts"])}, [WATTS], "Watts", {"pre_bind": True}),
        ({"multiPoint": plugin_set(["Watts"]), "preBind": plugin_set([], ["Watts"])}, [WATTS], "Watts",
         {"filter": True, "score": 1}),
        ({"multiPoint": plugin_set(["Holder"])}, [], "Holder", {"reserve": True, "permit": True}),
        ({"permit": plugin_set(["Holder"])}, [], "Holder", {"permit": True}),
        ({"multiPoint": plugin_set(["Prefers"])}, [], "Prefers", {"filter": True, "score": 0}),
        ({"filter": plugin_set(["Prefers"])}, [], "Prefers", {"filter": True, "score": 0}),
    ],
)  # fmt: skip
def test_where_a_plugin_takes_part(site: Site, plugins: Any, config: Any, name: str, taking_part: Any) -> None:
    assert points(only(plugins, config), name) == taking_part


def test_what_is_not_named_is_not_imported(site: Site) -> None:
    read(profiles=[{}])
    read(profiles=[{"plugins": {"multiPoint": plugin_set(disabled=["Watts", "Gone"])}}])
    assert PREFIX + "power" not in sys.modules


def test_each_profile_has_a_plugin_of_its_own(site: Site) -> None:
    plugins = {"multiPoint": plugin_set(["Watts"])}
    profiles = [
        {"schedulerName": name, "plugins": plugins, "pluginConfig": [{"name": "Watts", "args": {"mostWatts": watts}}]}
        for name, watts in (("a", 100), ("b", 200))
    ]
    found: list[Any] = [each.pre_bind[0] for each in read(profiles=profiles).profiles]
    assert [each.plugin.args.most_watts for each in found] == [100, 200]


def test_arguments_may_say_what_they_are(site: Site) -> None:
    args = {"apiVersion": "example.com/v1", "kind": "WattsArgs", "mostWatts": 5, "racks": ["a"]}
    plugin: Any = only({"preBind": plugin_set(["Watts"])}, [{"name": "Watts", "args": args}]).pre_bind[0]
    assert plugin.plugin.args.racks == ("a",)


def test_what_is_given_to_a_plugin_that_is_not_enabled_is_said(site: Site) -> None:
    found = read(profiles=[{"plugins": {"preFilter": plugin_set(["Watts"])}, "pluginConfig": [WATTS]}])
    assert list(found.notes) == [
        "profiles[0].pluginConfig[0].name: 'Watts' has no effect: it is not enabled",
        "profiles[0].plugins.preFilter.enabled[0].name: 'Watts' has no effect: it is not switched at preFilter",
    ]


ARGS = "profiles[0].pluginConfig[0].args"


@pytest.mark.parametrize(
    ("args", "lines"),
    [
        ({"mostWatts": 0}, [f"{ARGS}: an object cannot be used by Watts: ValueError: mostWatts must be more than 0"]),
        ({"mostWatts": "5"}, [f"{ARGS}.mostWatts: '5' is not a whole number"]),
        ({"mostWatts": 5, "watts": 6}, [f"{ARGS}.watts: 6 has no meaning: there is no such field"]),
        ({}, [f"{ARGS}: an object lacks mostWatts"]),
        (None, [f"{ARGS}: an object lacks mostWatts"]),
        (3, [f"{ARGS}: 3 is not an object"]),
        ({"kind": "Other", "mostWatts": 5}, [f"{ARGS}.kind: 'Other' is not WattsArgs"]),
    ],
)
def test_wrong_arguments(site: Site, args: Any, lines: list[str]) -> None:
    config = [{"name": "Watts", "args": args}]
    assert problems(profiles=[{"plugins": {"score": plugin_set(["Watts"])}, "pluginConfig": config}]) == lines


POWER = f"power ({PREFIX}power"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Gone", f"'Gone' cannot be imported from {POWER}:Absent): AttributeError: module '{PREFIX}power' has no "
         "attribute 'Absent'"),
        ("Function", "is no subclass of koord.scheduling.plugin.Plugin"),
        ("Misnamed", f"'Misnamed' cannot be used from {POWER}:Misnamed): its name is 'Other'"),
        ("Nameless", f"'Nameless' cannot be used from {POWER}:Nameless): its name is None"),
        ("Untyped", "its Args, <class 'dict'>, is no msgspec.Struct"),
        ("Scoped", f"'Scoped' cannot be used from {POWER}:Scoped): its filter_scope or score_scope is no Scope"),
        ("Idle", "None is for Idle, which has none of filter, rejections, preferred_nodes, score, reserve, permit, "
         "pre_bind_patch"),
        ("Leaves", "None cannot be used by Leaves: SystemExit: no more"),
        ("Watts", "an object lacks mostWatts"),
        ("Nothing", "'Nothing' is no plugin that there is"),
    ],
)  # fmt: skip
def test_a_plugin_that_cannot_be_used(site: Site, name: str, why: str) -> None:
    """It is told once, wherever else the plugin is named."""
    plugins = {"multiPoint": plugin_set([name]), "filter": plugin_set(disabled=[name] if name != "Nothing" else [])}
    (line,) = problems(profiles=[{"plugins": plugins}])
    assert line.startswith("profiles[0].plugins.multiPoint.enabled[0].name: ")
    assert line.endswith(why)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def f(:", "SyntaxError: invalid syntax"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_module_that_cannot_be_imported(site: Site, source: str, why: str) -> None:
    site.install("broken", source, Broken="Broken")
    (line,) = problems(profiles=[{"plugins": {"filter": plugin_set(["Broken"])}}])
    head = (
        f"profiles[0].plugins.filter.enabled[0].name: 'Broken' cannot be imported from broken ({PREFIX}broken:Broken)"
    )
    assert line.startswith(f"{head}: {why}")


def test_a_name_that_two_packages_offer(site: Site) -> None:
    site.install("rival", "", Watts="Watts")
    both = f"power ({PREFIX}power:Watts) and rival ({PREFIX}rival:Watts)"
    assert problems(profiles=[{"plugins": {"filter": plugin_set(["Watts"])}}]) == [
        f"profiles[0].plugins.filter.enabled[0].name: 'Watts' is offered by {both}: one can be installed"
    ]
    assert PREFIX + "rival" not in sys.modules


def test_a_name_of_ours_is_ours(site: Site) -> None:
    site.install("imposter", "1 / 0", NodeName="NodeName")
    assert "NodeName" in [each.plugin.name for each in only({"filter": plugin_set(["NodeName"])}).plugins]


def test_one_that_is_not_there_yet_may_be_a_users(site: Site) -> None:
    source = "from koord.scheduling.plugin import Plugin\nclass C(Plugin):\n  name = 'DeviceShare'\n  permit = print"
    site.install("devices", source, DeviceShare="C")
    found = read(profiles=[{"plugins": {"permit": plugin_set(["DeviceShare"])}}])
    assert ([each.name for each in found.profiles[0].permit], found.missing) == (["DeviceShare"], ())


@pytest.mark.parametrize(
    ("name", "point", "line"),
    [
        ("Holder", "filter", "enabled[0].name: 'Holder' does nothing at filter"),
        ("Holder", "preBind", "enabled[0].name: 'Holder' does nothing at preBind"),
        ("Prefers", "permit", "enabled[0].name: 'Prefers' does nothing at permit"),
    ],
)
def test_a_point_where_a_plugin_does_nothing(site: Site, name: str, point: str, line: str) -> None:
    assert problems(profiles=[{"plugins": {point: plugin_set([name])}}]) == [f"profiles[0].plugins.{point}.{line}"]


@pytest.mark.parametrize(
    ("plugins", "is_wrong"),
    [
        ({"preBind": plugin_set(["Watts"], ["DefaultPreBind"])}, True),
        ({"preBind": plugin_set(["Watts"]), "multiPoint": plugin_set(disabled=["DefaultPreBind"])}, True),
        ({"preBind": plugin_set(["Watts"], ["*"])}, False),
        ({"preBind": plugin_set(["Watts", "DefaultPreBind"], ["*"])}, False),
        ({"preBind": plugin_set(disabled=["DefaultPreBind"])}, False),
    ],
)
def test_who_writes_on_pods(site: Site, plugins: Any, is_wrong: bool) -> None:
    """DefaultPreBind is there unless it is disabled by its name."""
    document = {"plugins": plugins, "pluginConfig": [WATTS] if named(["Watts"])[0] in _enabled(plugins) else []}
    if is_wrong:
        (line,) = problems(profiles=[document])
        assert line == (
            "profiles[0].plugins.preBind: 'Watts' needs DefaultPreBind, which is disabled and writes what plugins want"
            " on pods"
        )
    else:
        read(profiles=[document])


def _enabled(plugins: Any) -> list[Any]:
    return [each for point in plugins.values() for each in point["enabled"]]


def test_a_configuration_with_a_users_plugin_is_told_without_complaint(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    component.tell(read(profiles=[{"plugins": {"multiPoint": plugin_set(["Watts"])}, "pluginConfig": [WATTS]}]))
    assert [each for each in caplog.records if each.levelname == "WARNING"] == []
