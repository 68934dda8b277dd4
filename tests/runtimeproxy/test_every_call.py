"""An exception raised in the place of every single call that the engine makes, one after the other.

Whatever it is, it costs the editing of the request that it happened to, no more: that request goes on as it came (or is
refused under policy Fail), in time and once, all others are edited as ever, every connection stays, and it is counted.
Which kind is raised where rotates; ``SOAK=1`` raises every kind at every call.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest

from koord.http2.grpc import INTERNAL, UNAVAILABLE
from koord.pb.cri import api_pb2 as cri
from runtimeproxy.cri import interceptor
from runtimeproxy.hooks.hookfile import FailurePolicy
from tests.runtimeproxy.callsites import CallSites, Site
from tests.runtimeproxy.faultrig import HELD, Node, Outcome, Say, edit, fail_or_echo, requests, running
from tests.support.waiting import until

# An exception between the making of a coroutine and that of its task leaves one that never ran.
pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
PACKAGE = str(Path(interceptor.__file__).parents[1])
ENGINE = ("cri/", "hooks/", "wire/", "audit.py", "metrics.py")
CALLS = CallSites(lambda file: file.startswith(tuple(f"{PACKAGE}/{part}" for part in ENGINE)))
Count = Callable[[str, object], None]
KINDS = (RuntimeError, MemoryError, ImportError, TypeError)
USUAL = "a pod's life"
REFUSABLE = (*HELD, "StartContainer", "RemovePodSandbox")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Thousands of tracebacks say nothing; the runtime is asked again at once."""
    monkeypatch.setattr(interceptor, "FIRST_PAUSE_S", 0.001)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def injections(sites: Iterable[Site]) -> list[tuple[Site, type[Exception]]]:
    return list(product(sites, KINDS)) if os.environ.get("SOAK") else list(zip(sites, cycle(KINDS), strict=False))


def comparable(request: Any) -> Any:
    """An update's annotations depend on whether the creation before it was edited."""
    if isinstance(request, cri.UpdateContainerResourcesRequest):
        request.annotations.clear()
    return request


def received(outcomes: Sequence[Outcome]) -> list[Any]:
    return [comparable(outcome.received[0]) for outcome in outcomes]


async def settled(node: Node) -> bool:
    """Has the proxy loaded, and read again, what it may lack, when it was given some time?"""
    await node.interceptor.warm_up()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(30):
            await until(lambda: node.forgetful or not node.interceptor.holds_creates)
            return True
    return False


class Faulty:
    """A node with an exception at one call after the other. ``clean``: what the runtime gets without any; ``first``:
    what happens once failed, so that it may be missed until it is tried again."""

    def __init__(self, node: Node, policy: FailurePolicy, clean: Sequence[Any], *, first: bool = False) -> None:
        self._node, self._policy, self._clean, self._first = node, policy, clean, first
        self.made = 0
        self.problems: list[str] = []

    async def inject(self, site: Site, error: Exception) -> None:
        node = self._node
        counted, accepted = node.counted, dict(node.accepted)
        with CALLS.failing(site, error) as raised:
            outcomes = await node.lifecycle()
            is_settled = await settled(node)
        self.made += len(raised)
        problems = [] if is_settled else ["the runtime's list was not read again"]
        problems += [problem for index, outcome in enumerate(outcomes) if (problem := self._wrong(index, outcome))]
        other = {outcome.method for index, outcome in enumerate(outcomes) if self._is_other(index, outcome)}
        if len(other) > 1 and not self._first:
            problems.append(f"it cost more than one method: {other}")
        if raised and node.counted == counted:
            problems.append("it is not counted")
        if any(node.accepted[name] != before for name, before in accepted.items()):
            problems.append(f"a connection was lost: {accepted}, {node.accepted}")
        problems += [f"nobody caught {each}" for each in node.unhandled]
        node.unhandled.clear()
        self.problems += [f"{type(error).__name__} at {site}: {problem}" for problem in problems]

    def _wrong(self, index: int, outcome: Outcome) -> str | None:
        """What is amiss with the outcome of a call that was edited, or not, or refused where the policy says so."""
        if outcome.needless:
            return None
        refusable = self._policy is FailurePolicy.FAIL and outcome.method in REFUSABLE
        if refusable and outcome.refused is not None and outcome.refused.code in (INTERNAL, UNAVAILABLE):
            right = outcome.received == ()
        else:
            got = [comparable(each) for each in outcome.received]
            right = outcome.refused is None and got in [[each] for each in self._allowed(index, refusable)]
        return None if right else f"{outcome.method}: {outcome.refused!r}, the runtime got {outcome.received}"

    def _allowed(self, index: int, refusable: bool) -> list[Any]:
        method, original = requests()[index]
        clean = self._clean[index]
        allowed = [clean] if refusable else [clean, original]
        if method == "CreateContainer":  # if its sandbox was not edited there is nothing to repeat of that
            alone = type(clean).FromString(clean.SerializeToString())
            alone.sandbox_config.CopyFrom(original.sandbox_config)
            allowed.append(alone)
        return allowed

    def _is_other(self, index: int, outcome: Outcome) -> bool:
        got = [comparable(each) for each in outcome.received]
        return not outcome.needless and outcome.method != "CreateContainer" and got != [self._clean[index]]


async def sites_of(node: Node) -> list[Site]:
    with CALLS.recorded() as sites:
        await node.lifecycle()
        await settled(node)
    return list(sites)


async def usual_sites(directory: Path) -> frozenset[Site]:
    async with running(directory) as node:
        await sites_of(node)
        return frozenset(await sites_of(node))


@pytest.mark.parametrize(
    ("name", "policy", "say", "forgetful", "advice"),
    [
        (USUAL, FailurePolicy.IGNORE, edit, False, False),
        (USUAL, FailurePolicy.FAIL, edit, False, False),
        ("nothing remembered", FailurePolicy.IGNORE, edit, True, False),
        ("nothing remembered", FailurePolicy.FAIL, edit, True, False),
        ("servers that are told of sandboxes", FailurePolicy.FAIL, edit, False, True),
        ("a server that fails and one that echoes", FailurePolicy.IGNORE, fail_or_echo, False, False),
    ],
)
async def test_an_exception_costs_one_request_its_editing(
    name: str, policy: FailurePolicy, say: Say, forgetful: bool, advice: bool, tmp_path: Path, record_property: Count
) -> None:
    async with running(tmp_path, policy, say, forgetful, advice) as node:
        await node.lifecycle()  # loads the engine, connects
        await settled(node)
        sites = await sites_of(node)
        if name != USUAL and not os.environ.get("SOAK"):
            usual = await usual_sites(tmp_path / "usual")
            sites = [site for site in sites if site not in usual]
        clean = received(await node.lifecycle())
        faulty = Faulty(node, policy, clean)
        for site, kind in injections(sites):
            await faulty.inject(site, kind("injected"))
        last = received(await node.lifecycle())
    record_property(
        "count", f"{name}, policy {policy.value}: {faulty.made} exceptions in the place of {len(sites)} calls"
    )
    assert faulty.problems == []
    assert last == clean
    assert faulty.made >= 0.99 * len(sites)


@pytest.mark.parametrize("policy", FailurePolicy)
async def test_an_exception_at_the_first_call_ever_costs_no_more(
    policy: FailurePolicy, tmp_path: Path, record_property: Count
) -> None:
    """At what happens once: the engine is made, connections are opened, the runtime's pods are listed. Not at what
    happens once in a process: imports have their own test."""
    async with running(tmp_path / "imported", policy) as node:
        await sites_of(node)
    async with running(tmp_path / "recorded", policy) as node:
        first = await sites_of(node)
        later = set(await sites_of(node))
        clean = received(await node.lifecycle())
    sites = [site for site in first if site not in later]
    made, problems = 0, list[str]()
    for number, (site, kind) in enumerate(injections(sites)):
        async with running(tmp_path / str(number), policy) as node:
            faulty = Faulty(node, policy, clean, first=True)
            await faulty.inject(site, kind("injected"))
            if received(await node.lifecycle()) != clean:
                problems.append(f"{kind.__name__} at {site}: it has lasting consequences")
        made, problems = made + faulty.made, problems + faulty.problems
    record_property(
        "count", f"at the first call, policy {policy.value}: {made} exceptions in the place of {len(sites)} calls"
    )
    assert problems == []
    assert made >= 0.99 * len(sites)


def test_an_import_that_fails_costs_what_it_was_for_and_heals(record_property: Count) -> None:
    """Each import that is made after the first accept, one by one, as in the midst of a package change."""
    command = [sys.executable, "-m", "tests.runtimeproxy.lateimports"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=600).stdout)
    record_property("count", f"{found['failed']} of {len(found['late'])} late imports failed, one at a time")
    assert {"google.protobuf.message", "koord.pb.cri.api_pb2", "runtimeproxy.cri.engine"} <= set(found["late"])
    assert found["wrong"] == {}
    assert found["failed"] == len(found["late"])


async def test_no_call_is_missed() -> None:
    """The net itself: an exception in the place of a function of Python, of C, a constructor and a method."""

    def work() -> list[int]:
        return sorted(map(int, ["2", "1"]))

    own = CallSites(lambda file: file == __file__)
    with own.recorded() as sites:
        work()
    assert [str(site).rpartition(" ")[2].rpartition(".")[2] for site in sites].count("work") == 2
    for site in sites:
        if "work" in str(site):
            with own.failing(site, MemoryError()) as raised, pytest.raises(MemoryError):
                work()
            assert raised == [site]
    await asyncio.sleep(0)
