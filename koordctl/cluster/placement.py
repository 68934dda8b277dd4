"""What koord-scheduler says of a pod, as lines: why it is where it is, or why it waits and what would help."""

from __future__ import annotations

from collections.abc import Iterator

from koord.model.core import unix_s
from koord.model.schedulerpages import Placed, PodPage, Waiting
from koordctl.table import align
from koordctl.values import age


def lines(page: PodPage, now_s: float) -> Iterator[str]:
    if page.placed is not None:
        yield from _placed(page.placed, page.state, now_s)
    elif page.waiting is not None:
        yield from _waiting(page.waiting, now_s)
    elif page.state != "other":
        yield f"koord-scheduler says: {page.remark}"


def _placed(placed: Placed, state: str, now_s: float) -> Iterator[str]:
    if not placed.at:
        yield (
            f"koord-scheduler does not know why it is on {placed.node}: another scheduler decided, or a replica that "
            "led before, or it was long ago"
        )
        return
    binding = ", and has not been confirmed yet" if state == "binding" else ""
    tries = "at the first try" if placed.attempts == 1 else f"at try {placed.attempts}"
    yield (
        f"koord-scheduler chose {placed.node} {_ago(placed.at, now_s)}{binding}: {tries}, after "
        f"{age(placed.waited_s)}; {placed.feasible_count} of {placed.node_count} nodes would have done"
    )
    if not placed.best:
        return
    names = [name for name in placed.weights if any(each.scores.get(name) for each in placed.best)]
    header = ["NODE", "TOTAL", *[f"{name}*{placed.weights[name]}" for name in names]]
    rows = [[each.node, str(each.total), *[str(each.scores.get(name, 0)) for name in names]] for each in placed.best]
    yield from (f"  {line}" for line in align(header, rows).splitlines())


def _waiting(waiting: Waiting, now_s: float) -> Iterator[str]:
    tries = {0: "not tried yet", 1: "tried once"}.get(waiting.attempts, f"tried {waiting.attempts} times")
    again = f", again at {waiting.tried_again_at} at the latest" if waiting.tried_again_at else ""
    waited = _for(waiting.since, now_s)
    yield f"koord-scheduler has it in its queue ({waiting.queue}), {tries}{again}; it has waited {waited}"
    for each in waiting.obstacles:
        nodes = "1 node" if each.node_count == 1 else f"{each.node_count} nodes"
        yield f"  {nodes} of {waiting.node_count}: {each.reason} ({each.plugin})"
        yield from (f"    {example.node}{f': {example.detail}' if example.detail else ''}" for example in each.examples)
    yield from _gangs(waiting)
    yield from (f"  what helps: {each}" for each in waiting.helps)
    if waiting.preemption:
        yield f"  no preemption: {waiting.preemption}"


def _gangs(waiting: Waiting) -> Iterator[str]:
    for number, each in enumerate(waiting.gangs):
        which = f"its gang {each.name}" if not number else f"gang {each.name}, which starts with it"
        there = each.least - each.missing
        if each.missing:
            yield f"  {which}: {there} of {each.least} members are there, {each.missing} more must exist"
        elif each.needed:
            lacks = each.needed - each.fitting
            said = f"there is none for {lacks} of them" if lacks else "there is one for each"
            yield f"  {which}: {each.needed} members must get a node together, and now {said}"
        else:
            yield f"  {which}: {each.placed} of {each.least} members are on nodes, so each member is placed by itself"
    if waiting.held and not any(each.missing for each in waiting.gangs):
        yield f"  not tried: {waiting.held}"
    yield from (f"  counts as absent: {each}" for each in waiting.problems)


def _ago(time: str, now_s: float) -> str:
    return f"{_for(time, now_s)} ago"


def _for(time: str, now_s: float) -> str:
    at_s = unix_s(time)
    return "some time" if at_s is None else age(max(0.0, now_s - at_s))
