"""Extenders: programs of others that have a say, by HTTP, in where pods go.

One is asked about a pod which nodes of those that all filters, and the extenders before it, let pass will do
(*filter*), how well (*prioritize*), whether these victims may leave (*preempt*), and to bind the pod (*bind*). As for
Go, the case of names in its answers does not matter, and what is null is absent.

Invariants: each question ends within the extender's time limit; no answer of more than ``MOST_BYTES`` and the length of
the question is read; what is in an answer is about nodes and pods that were asked about, or it is none. Where an
extender is ignorable, its failure is passed over. Fails with ExtenderError, which names the extender.
Sources: pkg/scheduler/extender.go, staging/src/k8s.io/kube-scheduler/extender/v1/types.go.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol, TypeVar

import aiohttp
import msgspec

import koord
from koord.kube.errors import KubeError
from koord.kube.lease import to_its_end
from koord.kube.transport import GuardedBody
from koord.model.schema import clip
from koord.scheduling.plugin import MOST_SCORE
from koord.scheduling.podinfo import PodInfo
from koord_scheduler.extendersettings import ExtenderSettings
from koord_scheduler.options import NAME

_log = logging.getLogger(__name__)
T = TypeVar("T")
MOST_BYTES = 1 << 24
_MOST_CHARACTERS = 300
_CHUNK = 1 << 16
_MOST_BINDINGS = 16
"""That one extender is asked for at once."""
_SCORE_SCALE = MOST_SCORE // 10
"""Scores of extenders go to 10, those of nodes to 100."""
_MOST_WEIGHTED = 2**53


class ExtenderError(Exception):
    """An extender does not answer, or what it says cannot be followed."""


class Refusal(ExtenderError):
    """An extender has understood the question, and its answer is that there is an error."""


class FailedNode(NamedTuple):
    """Why an extender rejects a node; "": it does not say. ``is_resolvable``: without some of its pods it may do."""

    reason: str = ""
    is_resolvable: bool = False


class Filtered(NamedTuple):
    """The names of the nodes that are left, and the others."""

    left: tuple[str, ...]
    failed: Mapping[str, FailedNode]


class Victims(NamedTuple):
    """The uids of the pods that are to leave a node. ``violations``: the disruption budgets that this breaks."""

    uids: tuple[str, ...]
    violations: int


class NodeObjects(NamedTuple):
    """Nodes by their names. The JSON of one is looked at only by extenders that do not know nodes themselves."""

    names: Sequence[str]
    json: Mapping[str, msgspec.Raw]

    def only(self, names: Iterable[str]) -> NodeObjects:
        wanted = set(names)
        return NodeObjects([each for each in self.names if each in wanted], self.json)


class VictimPods(Protocol):
    """The pods that may have to leave."""

    def may_leave(self, node: str, uid: str) -> bool:
        """Returns whether the pod is on the node, and less important than the one that needs room."""

    async def documents(self, uids: Iterable[str]) -> Mapping[str, Any]:
        """Returns the pods as JSON, without those that are gone. Raises KubeError."""


Told = Callable[[str, str, bool, float], None]


def unheard(extender: str, verb: str, is_answered: bool, seconds: float) -> None:
    pass


class Extender:
    """``name``: its address, for people. ``told``: called after each request with that, the verb, whether it was
    answered, and the seconds that it took.
    """

    def __init__(self, settings: ExtenderSettings, told: Told) -> None:
        self.settings, self.name, self._told = settings, settings.url, told
        self._bindings = asyncio.Semaphore(_MOST_BINDINGS)

    def is_interested_in(self, pod: PodInfo) -> bool:
        """Returns whether a container of the pod asks for one of its resources; it manages all pods without any."""
        managed, spec = self.settings.managed, pod.spec
        return not managed or any(
            not managed.isdisjoint(each.resources.requests) or not managed.isdisjoint(each.resources.limits)
            for each in (*spec.containers, *spec.init_containers)
        )

    async def filter(self, session: aiohttp.ClientSession, pod: msgspec.Raw, nodes: NodeObjects) -> Filtered:
        answer = await self._ask(session, self.settings.filter_verb, self._question(pod, nodes))
        said, names = answer.get("nodenames"), nodes.names
        if said is not None and self.settings.is_node_cache_capable:
            left = self._read(said, list[str])
        else:
            listed = self._read(self._members(answer.get("nodes")).get("items") or [], list[dict[str, Any]])
            left = [self._read(self._members(each.get("metadata")).get("name"), str) for each in listed]
        unknown = set(left).difference(names)
        if unknown:
            raise self._error(f"lets nodes pass that it was not asked about, such as {clip(min(unknown))}")
        failed = dict.fromkeys(set(names).difference(left), FailedNode())
        for member, is_resolvable in (("failednodes", True), ("failedandunresolvablenodes", False)):
            for name, reason in self._read(answer.get(member) or {}, dict[str, str]).items():
                if name in failed:
                    failed[name] = FailedNode(_short(reason), is_resolvable)
        passed = set(left)
        return Filtered(tuple([each for each in names if each in passed]), failed)

    async def prioritize(
        self, session: aiohttp.ClientSession, pod: msgspec.Raw, nodes: NodeObjects
    ) -> Mapping[str, int]:
        """Returns what is added to the scores of nodes. (Scores below 0 or above 10 count as upstream counts them.)"""
        answer = await self._send(session, self.settings.prioritize_verb, self._question(pod, nodes))
        found: dict[str, int] = {}
        for each in self._read(answer or [], list[dict[str, Any]]):
            members = self._members(each)
            name, score = self._read(members.get("host") or "", str), self._read(members.get("score") or 0, int)
            weighted = score * self.settings.weight * _SCORE_SCALE
            if abs(weighted) > _MOST_WEIGHTED:
                raise self._error(f"gives node {clip(name)} the score {clip(score)}, which is too large")
            found[name] = found.get(name, 0) + weighted
        return found

    async def preempt(
        self, session: aiohttp.ClientSession, pod: msgspec.Raw, victims: Mapping[str, Victims], pods: VictimPods
    ) -> dict[str, Victims]:
        """``victims``: by nodes."""
        sent, by_uid = await self._sent(victims, pods), self.settings.is_node_cache_capable
        question = {
            "Pod": pod,
            "NodeNameToVictims": None if by_uid else sent,
            "NodeNameToMetaVictims": sent if by_uid else None,
        }
        answer = await self._ask(session, self.settings.preempt_verb, question)
        found = {}
        for node, said in self._read(answer.get("nodenametometavictims") or {}, dict[str, Any]).items():
            members = self._members(said)
            listed = self._read(members.get("pods") or [], list[dict[str, Any]])
            uids = tuple([self._read(self._members(each).get("uid"), str) for each in listed])
            strange = next((uid for uid in uids if not pods.may_leave(node, uid)), None)
            if strange is not None:
                raise self._error(f"names pod {clip(strange)} as a victim on node {clip(node)}, where it cannot be one")
            if uids:
                found[node] = Victims(uids, self._read(members.get("numpdbviolations") or 0, int))
            elif not self.settings.is_ignorable:
                raise self._error(f"names no victim on node {clip(node)}")
        return found

    async def _sent(self, victims: Mapping[str, Victims], pods: VictimPods) -> dict[str, Any]:
        uids = {uid for each in victims.values() for uid in each.uids}
        by_uid = self.settings.is_node_cache_capable
        shown = {uid: {"UID": uid} for uid in uids} if by_uid else await pods.documents(uids)
        return {
            node: {"Pods": [shown[uid] for uid in each.uids], "NumPDBViolations": each.violations}
            for node, each in victims.items()
            if all(uid in shown for uid in each.uids)
        }

    async def bind(self, session: aiohttp.ClientSession, pod: PodInfo, node: str, check: Callable[[], None]) -> None:
        """Has the pod bound. Raises Refusal where it says that it was not. ``check`` is called before anything is sent;
        what it raises, a KubeError, is raised. Cancelled, it waits for the answer: the pod may be bound until then.
        """
        named = {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node}
        async with self._bindings:
            await to_its_end(self._ask(session, self.settings.bind_verb, named, check))

    def _question(self, pod: msgspec.Raw, nodes: NodeObjects) -> dict[str, Any]:
        if self.settings.is_node_cache_capable:
            return {"Pod": pod, "Nodes": None, "NodeNames": nodes.names}
        listed = {"metadata": {}, "items": [nodes.json[each] for each in nodes.names]}
        return {"Pod": pod, "Nodes": listed, "NodeNames": None}

    async def _ask(
        self, session: aiohttp.ClientSession, verb: str, question: object, check: Callable[[], None] | None = None
    ) -> dict[str, Any]:
        """Returns the members of the answer, in small letters."""
        answer = self._members(await self._send(session, verb, question, check))
        error = self._read(answer.get("error") or "", str)
        if error:
            raise Refusal(f"extender {self.name}: {_short(error)}")
        return answer

    async def _send(
        self, session: aiohttp.ClientSession, verb: str, question: object, check: Callable[[], None] | None = None
    ) -> Any:
        begun_s = time.monotonic()
        try:
            answer = await self._exchanged(session, verb, question, check)
        except ExtenderError:
            self._told(self.name, verb, False, time.monotonic() - begun_s)
            raise
        self._told(self.name, verb, True, time.monotonic() - begun_s)
        return answer

    async def _exchanged(
        self, session: aiohttp.ClientSession, verb: str, question: object, check: Callable[[], None] | None
    ) -> Any:
        body, timeout_s = msgspec.json.encode(question), self.settings.timeout_s
        try:
            async with (
                asyncio.timeout(timeout_s),
                session.post(
                    f"{self.settings.url}/{verb}",
                    data=body if check is None else GuardedBody(body, check),
                    headers={"Content-Type": "application/json"},
                    allow_redirects=False,
                    ssl=self.settings.tls or True,
                    server_hostname=self.settings.server_name,
                ) as response,
            ):
                if response.status != HTTPStatus.OK:
                    raise self._error(f"answers {verb} with status {response.status}")
                answer = await self._body(response.content, MOST_BYTES + len(body))
        except TimeoutError as error:
            raise self._error(f"does not answer {verb} within {timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error.__cause__, KubeError):
                raise error.__cause__ from error
            raise self._error(f"cannot be asked to {verb}: {_short(str(error) or type(error).__name__)}") from error
        try:
            return msgspec.json.decode(answer)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise self._error(f"answers {verb} with what is not JSON: {error}") from error

    async def _body(self, content: aiohttp.StreamReader, most_bytes: int) -> bytes:
        found = bytearray()
        while chunk := await content.read(_CHUNK):
            found += chunk
            if len(found) > most_bytes:
                raise self._error(f"answers with more than {most_bytes} bytes")
        return bytes(found)

    def _members(self, value: object) -> dict[str, Any]:
        """The members of an object, by their names in small letters."""
        return {name.lower(): member for name, member in self._read(value or {}, dict[str, Any]).items()}

    def _read(self, value: object, cls: type[T]) -> T:
        try:
            return msgspec.convert(value, cls)
        except msgspec.ValidationError as error:
            raise self._error(f"answers with what is none: {error}") from error

    def _error(self, why: str) -> ExtenderError:
        return ExtenderError(f"extender {self.name} {why}")


class Extenders:
    """All of a scheduler, in the order in which they are asked; to be ``connected``."""

    def __init__(self, settings: Sequence[ExtenderSettings] = (), told: Told = unheard) -> None:
        self._all = tuple([Extender(each, told) for each in settings])
        self._session: aiohttp.ClientSession | None = None

    def __bool__(self) -> bool:
        return bool(self._all)

    @property
    def need_nodes(self) -> bool:
        """Whether one of them is to be sent whole nodes."""
        return any(not each.settings.is_node_cache_capable and _decides(each) for each in self._all)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Within the block they can be asked."""
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": f"{NAME}/{koord.__version__}", "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        ) as self._session:
            yield

    def deciding_about(self, pod: PodInfo) -> frozenset[str]:
        """Returns the names of those that have a say in where the pod goes."""
        return frozenset([each.name for each in self._all if _decides(each) and each.is_interested_in(pod)])

    def binder_of(self, pod: PodInfo) -> Extender | None:
        """Returns the one that binds the pod."""
        return next((each for each in self._all if each.settings.bind_verb and each.is_interested_in(pod)), None)

    async def filter(self, pod: PodInfo, document: msgspec.Raw, nodes: NodeObjects) -> Filtered:
        """Asks one after the other about the nodes that those before it have left."""
        failed: dict[str, FailedNode] = {}
        for extender in self._interested_in(pod):
            if not extender.settings.filter_verb or not nodes.names:
                continue
            try:
                answer = await extender.filter(self._connection, document, nodes)
            except ExtenderError as error:
                _pass_over(extender, error)
                continue
            failed |= answer.failed
            nodes = nodes.only(answer.left)
        return Filtered(tuple(nodes.names), failed)

    async def prioritize(self, pod: PodInfo, document: msgspec.Raw, nodes: NodeObjects) -> Mapping[str, int]:
        """Returns what all of them, asked at once, add to the scores. One that fails adds nothing, as upstream's."""
        asked = [each for each in self._interested_in(pod) if each.settings.prioritize_verb]
        total: dict[str, int] = {}
        for scores in await asyncio.gather(*[self._scores(each, document, nodes) for each in asked]):
            for name, score in scores.items():
                total[name] = total.get(name, 0) + score
        return total

    async def _scores(self, extender: Extender, document: msgspec.Raw, nodes: NodeObjects) -> Mapping[str, int]:
        try:
            return await extender.prioritize(self._connection, document, nodes)
        except ExtenderError as error:
            _log.warning("%s: it does not score", error)
            return {}

    def preempting_for(self, pod: PodInfo) -> Sequence[Extender]:
        """Returns those that have a say in which pods leave for this one."""
        return [each for each in self._interested_in(pod) if each.settings.preempt_verb]

    async def preempt(
        self, pod: PodInfo, document: msgspec.Raw, victims: Mapping[str, Victims], pods: VictimPods
    ) -> Mapping[str, Victims]:
        """Returns what is left of the victims, by nodes. Raises KubeError, too, where a victim cannot be read."""
        for extender in self.preempting_for(pod):
            if not victims:
                break
            try:
                victims = await extender.preempt(self._connection, document, victims, pods)
            except ExtenderError as error:
                _pass_over(extender, error)
        return victims

    async def bind(self, extender: Extender, pod: PodInfo, node: str, check: Callable[[], None]) -> None:
        """As `Extender.bind`."""
        await extender.bind(self._connection, pod, node, check)

    @property
    def _connection(self) -> aiohttp.ClientSession:
        assert self._session is not None
        return self._session

    def _interested_in(self, pod: PodInfo) -> list[Extender]:
        return [each for each in self._all if each.is_interested_in(pod)]


NO_EXTENDERS = Extenders()


def _decides(extender: Extender) -> bool:
    settings = extender.settings
    return bool(settings.filter_verb or settings.prioritize_verb or settings.preempt_verb)


def _pass_over(extender: Extender, error: ExtenderError) -> None:
    """Raises the error of an extender that cannot be done without."""
    if not extender.settings.is_ignorable:
        raise error
    _log.info("%s: it is passed over", error)


def _short(text: str) -> str:
    """Texts of extenders become parts of a pod's condition."""
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
