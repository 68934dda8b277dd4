"""Says of a pod that waits what its gang needs, who lacks what, and for how many of them there is room now."""

from __future__ import annotations

from typing import NamedTuple

from koord.model.schedulerpages import WaitingGang
from koord.scheduling import gangplacement
from koord.scheduling.gangplacement import Member, NoHolder
from koord.scheduling.plugin import PluginError
from koord.scheduling.podinfo import PodInfo
from koord_scheduler.view import ClusterView


class GangInfo(NamedTuple):
    """As of `koord.model.schedulerpages.Waiting`."""

    gangs: tuple[WaitingGang, ...] = ()
    held: str = ""
    problems: tuple[str, ...] = ()


def of(view: ClusterView, pod: PodInfo) -> GangInfo:
    """Costs what placing the gang costs. Changes nothing."""
    gangs = view.gangs
    key = gangs.of(pod.uid)
    if key is None:
        return GangInfo()
    needs, held = gangs.needs(key), gangs.why_not(key)
    found = [gang for each in gangs.group(key) if (gang := gangs.get(each)) is not None]
    candidates = sorted(gangs.candidates(key), key=lambda each: (-each.priority, each.name))
    members = [Member(each, gangs.of(each.uid) or key) for each in candidates]
    short = dict(needs)
    try:
        with gangplacement.held(view.state, NoHolder()) as attempt:
            short = attempt.fill(view.framework_of, members, needs).short
    except PluginError as error:
        held = held or str(error)
    rows, problems = [], list[str]()
    for gang in sorted(found, key=lambda each: each.key != key):
        settings, needed = gang.settings, needs.get(gang.key, 0)
        problems.extend(settings.problems if settings else ())
        rows.append(
            WaitingGang(
                str(gang.key),
                settings.min_member if settings else 0,
                settings.match_policy.value if settings else "",
                len(gang.waiting),
                gangs.placed_count(gang),
                len(gang.succeeded),
                gangs.missing(gang),
                needed,
                needed - short.get(gang.key, 0),
            )
        )
    return GangInfo(tuple(rows), held, tuple(problems))
