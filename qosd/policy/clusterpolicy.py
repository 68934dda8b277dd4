"""The cluster's policy for this node: its NodeSLO and its Node, as layers over the rules file; the last good ones stay.

``qosd.cluster.session`` hands over the API server's answers; no code here talks to one. Each object has one state:
never known; in force; last good, with its age and why; or none, when the API server says that there is no such object,
and then the file and the built-in defaults are the policy.

An answer stays in force while the API server is away, and while a newer one cannot be used, across restarts too: it is
kept on disk, with the time of the API server's last word. So a node works on when the cluster is gone. A deleted Node
stays as it was known, since the machine is still what it was, and its NodeSLO stays with it: the manager removes that
because there is no Node, which is no word on policy. An absent NodeSLO counts only while the API server answers, and
only if there is a Node that has been there for ``NEW_S`` since it was gone or another: the manager makes its NodeSLO
after it.

Before the first answer the policy is unknown, as with a file that was never read: nothing is decided and nothing
released. Built-in defaults instead would switch off what an earlier run protected, only because there is no answer yet.
Once the API server has been tried in vain, what is known is better than nothing: a rules file stands in for what is not
known of the cluster, as its operator wrote it for this very node; without a file, a known NodeSLO does without its
Node, though no Node without its NodeSLO. Nothing stands in before that, or each start would decide by the file first
and by the cluster a moment later; nor where a copy is damaged, for then there was a policy, and it is not known what it
protected. Without a cluster (``is_expected`` is off) there is nothing to wait for, and no copy is read.

Invariants: no content of an object raises; the same answer again changes nothing and calls nothing; ``changed`` is
called when ``stated``, ``unknown``, ``warnings`` or ``outage`` has changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from koord.model import schema, slo
from koord.model.core import Node
from koord.model.problem import Problem
from koord.model.schema import SchemaError
from koord.model.slo import NodeSLOSpec
from qosd.policy.kept import CopyUnusable, Keeper, PolicyDocument
from qosd.policy.nodeobject import NodeFacts
from qosd.policy.overlay import NOT_SET, ClusterOverrides, bad_settings
from qosd.policy.provenance import Origin, Provenance

T = TypeVar("T")
NODE_SLO, NODE = "NodeSLO", "Node"
_FRESHENED_S = 3600.0  # the age of the time in a copy while the API server answers; a crash adds it
_LEAST_S = 60.0  # the least age for a write when the API server goes away, which may happen often
NEW_S = 60.0
"""For this time after a Node has come, a missing NodeSLO may still be made."""
_NOT_YET = "the API server has not answered yet"
_NOT_AGAIN = "the API server has not said it again yet"
_STAYS = "what it said last stays"


@dataclass(frozen=True, slots=True)
class LastKnown(Generic[T]):
    """The API server's last good answer on an object: None = there is none. ``text``: the same for the copy."""

    name: str
    value: T | None
    text: str
    warnings: tuple[str, ...] = ()
    generation: int = 0
    bad_settings: frozenset[str] = frozenset()


class WatchedObject(Generic[T]):
    """One object of the API server: its last good answer, the time when that held last, and why it may not hold now."""

    def __init__(self, kind: str, kept: Keeper | None) -> None:
        self.kind = kind
        self.word: LastKnown[T] | None = None
        self.refused = ""
        """Why what the API server says now is not taken."""
        self.away = ""
        """Why the API server says nothing now."""
        self.is_awaited = True
        """Neither has it ever been said, nor was the API server ever asked in vain."""
        self._kept, self._kept_unix_s = kept, 0.0
        self.unusable = ""
        """Why the copy cannot be used, which tells that there was one."""
        self.is_heard = False
        """Has the API server said anything good in this run?"""
        self._said_unix_s: float | None = None

    @property
    def provenance(self) -> Provenance:
        not_heard = "" if self.is_heard else _NOT_YET if self.word is None else _NOT_AGAIN
        problem = "; ".join(filter(None, (self.refused, self.away))) or not_heard
        if self.word is None:
            return Provenance(Origin.UNKNOWN, self.kind, problem=problem)
        origin = Origin.LAST_GOOD if problem else Origin.NONE if self.word.value is None else Origin.SOURCE
        return Provenance(origin, f"{self.word.name} of the API server", self._said_unix_s, problem)

    @property
    def warnings(self) -> tuple[str, ...]:
        unkept = self._kept.problem if self._kept is not None else ""
        said, stays = (self.word.warnings, f"; {_STAYS}") if self.word is not None else ((), "")
        return (*said, *filter(None, (self.refused and f"{self.refused}{stays}", self.unusable, unkept)))

    def recall(self, read: Callable[[str], LastKnown[T]]) -> None:
        """Starts from the copy, if there is one."""
        try:
            document = self._kept.recall() if self._kept is not None else None
            if document is not None:
                self.word, self.is_awaited = read(document.text), False
                self._said_unix_s = self._kept_unix_s = document.taken_unix_s
        except (CopyUnusable, SchemaError, msgspec.MsgspecError) as error:
            self.unusable = f"the kept {self.kind} counts as none: {error}"

    def take(self, word: LastKnown[T], now_unix_s: float) -> None:
        self.is_heard, self.is_awaited, self.refused = True, False, ""
        self._said_unix_s = now_unix_s
        if self.word is None or self.word.text != word.text:
            self.word = word
            self._keep()
        self.confirm(now_unix_s)

    def refuse(self, why: str) -> None:
        """Takes note that the API server's present word cannot be used."""
        self.refused, self.is_awaited = why, False

    def lose(self, why: str) -> None:
        self.away, self.is_awaited = why, False
        self.freshen(_LEAST_S)

    def confirm(self, now_unix_s: float) -> None:
        """Takes note that the API server answers, and has said nothing else since."""
        self.away = ""
        if self.is_heard and not self.refused:
            self._said_unix_s = now_unix_s
            self.freshen(_FRESHENED_S)

    def freshen(self, least_s: float = _LEAST_S) -> None:
        """Writes the time of the API server's last word into the copy, if the time there is older by ``least_s``."""
        if self._said_unix_s is not None and self._said_unix_s - self._kept_unix_s >= least_s:
            self._keep()

    def _keep(self) -> None:
        if self._kept is not None and self.word is not None and self._said_unix_s is not None:
            self._kept.keep(PolicyDocument(self.word.text, self.provenance.source, self._said_unix_s))
            self._kept_unix_s, self.unusable = self._said_unix_s, ""


class ClusterPolicy:
    """Lives in the event loop. ``changed`` is called after a change; ``kept_slo`` and ``kept_node`` keep copies.

    ``is_expected``: there is a cluster, and its word is waited for. ``clock``: monotonic seconds.
    """

    def __init__(
        self,
        changed: Callable[[], object],
        *,
        is_expected: bool = False,
        kept_slo: Keeper | None = None,
        kept_node: Keeper | None = None,
        now_unix_s: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._changed, self._is_expected = changed, is_expected
        self._now_unix_s, self._clock = now_unix_s, clock
        self._slo = WatchedObject[NodeSLOSpec](NODE_SLO, kept_slo if is_expected else None)
        self._node = WatchedObject[NodeFacts](NODE, kept_node if is_expected else None)
        self._slo_is_absent = False
        self._node_came_s = float("-inf")
        self._slo.recall(_kept_slo)
        self._node.recall(_kept_node)
        self._shown = self._content()

    # calls of the session

    def take_slo(self, spec: Mapping[str, Any] | None, generation: int) -> None:
        """Takes the NodeSLO's ``spec``; None: the API server says that there is no NodeSLO."""
        self._slo_is_absent = spec is None
        if spec is not None:
            try:
                self._slo.take(_slo_word(spec, generation), self._now_unix_s())
            except SchemaError as error:
                self._slo.refuse(f"{_slo_name(generation)}: {error}")
        self._take_absence()
        self._settle()

    def refuse_slo(self, why: str) -> None:
        """Takes note that there is a NodeSLO which cannot be read at all."""
        self._slo_is_absent = False
        self._slo.refuse(why)
        self._settle()

    def take_node(self, node: Node | None) -> None:
        """Takes the Node; None: the API server says that there is none of this name."""
        if node is None:
            self.refuse_node("there is no Node of this name")
            return
        facts, known = NodeFacts.of(node), self.node
        if self._node.refused or (known is not None and known.uid != facts.uid):
            self._node_came_s = self._clock()
        self._node.take(_node_word(facts), self._now_unix_s())
        self._take_absence()
        self._settle()

    def refuse_node(self, why: str) -> None:
        """Takes note that the API server's word on the Node cannot be used."""
        self._node.refuse(why)
        self._take_absence()
        self._settle()

    def lost(self, why: str) -> None:
        """Takes note that the API server is away: its last word stays in force."""
        for each in (self._slo, self._node):
            each.lose(why)
        self._settle()

    def reached(self) -> None:
        """Takes note that the API server answers: what was taken from it holds now."""
        for each in (self._slo, self._node):
            each.confirm(self._now_unix_s())
        self._take_absence()
        self._settle()

    def close(self) -> None:
        """Writes the time of the API server's last word into the copies."""
        for each in (self._slo, self._node):
            each.freshen()

    # the layers

    @property
    def node(self) -> NodeFacts | None:
        """Returns the Node as it was last known; None if it never was."""
        return self._node.word.value if self._node.word is not None else None

    @property
    def stated(self) -> ClusterOverrides:
        word = self._slo.word
        if word is None:
            return ClusterOverrides(node=self.node, node_source=self._node_name)
        return ClusterOverrides(word.value, word.generation, word.name, self.node, self._node_name, word.bad_settings)

    @property
    def layers(self) -> Mapping[str, Provenance]:
        """Returns the layers by kind, the lowest first; none without a cluster."""
        if not self._is_expected and self._slo.word is None and self._node.word is None:
            return {}
        return {each.kind: each.provenance for each in (self._slo, self._node)}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Returns the problems of the objects and of their copies."""
        return (*self._slo.warnings, *self._node.warnings)

    @property
    def outage(self) -> str:
        """Returns that the API server is away, and which policy is in force meanwhile; "" while it answers."""
        away = self._slo.away or self._node.away
        return f"the cluster is away: {away}; {_ignorance(self._never_known()) or _STAYS}" if away else ""

    def unknown(self, has_file: bool) -> str:
        """Returns why the policy is unknown; "" if it is known. ``has_file``: there is a rules file to go by."""
        never = self._never_known() if self._is_expected else []
        may_stand_in = not any(each.is_awaited or each.unusable for each in never)
        if not never or (may_stand_in and (has_file or self._slo.word is not None)):
            return ""
        by_problem: dict[str, list[WatchedObject[Any]]] = {}
        for each in never:
            by_problem.setdefault("; ".join(filter(None, (each.provenance.problem, each.unusable))), []).append(each)
        return "; ".join(f"{_ignorance(objects)}: {problem}" for problem, objects in by_problem.items())

    def _never_known(self) -> list[WatchedObject[Any]]:
        objects: Iterable[WatchedObject[Any]] = (self._slo, self._node)
        return [each for each in objects if each.word is None]

    @property
    def _node_name(self) -> str:
        return f"{NODE} {self.node.name}" if self.node is not None else NODE

    def _settle(self) -> None:
        content = self._content()
        if content != self._shown:
            self._shown = content
            self._changed()

    def _take_absence(self) -> None:
        """Takes the absence of a NodeSLO as policy only where there is a Node, and has been for a while."""
        if not self._slo_is_absent:
            return
        if self._node.refused:
            self._slo.refuse(f"there is no {NODE_SLO}, and {self._node.refused}")
        elif not self._node.is_heard or self._node.away:
            return
        elif self.stated.slo is not None and self._clock() < self._node_came_s + NEW_S:
            self._slo.refuse(f"there is no {NODE_SLO}, and {self._node_name} is new: it may still be made")
        else:
            self._slo.take(_slo_word(None, 0), self._now_unix_s())

    def _content(self) -> tuple[object, ...]:
        return self.stated, self.unknown(has_file=True), self.unknown(has_file=False), self.warnings, self.outage


def _ignorance(objects: list[WatchedObject[Any]]) -> str:
    """Returns a sentence that the objects were never known; "" for no objects."""
    kinds = " and ".join(each.kind for each in objects)
    return f"the cluster's {kinds} {'were' if len(objects) > 1 else 'was'} never known here" if objects else ""


def _slo_name(generation: int) -> str:
    return f"{NODE_SLO} generation {generation}"


def _slo_word(spec: Mapping[str, Any] | None, generation: int) -> LastKnown[NodeSLOSpec]:
    """Raises SchemaError where nothing of it can be used."""
    text = msgspec.json.encode({"generation": generation, "spec": spec}).decode()
    if spec is None:
        return LastKnown(f"the word that there is no {NODE_SLO}", None, text)
    name, ignored, problems = _slo_name(generation), list[str](), list[Problem]()
    value = slo.decode_spec(
        spec,
        unknown=lambda path: ignored.append(f"{name}: {path}: no such key in NodeSLO, ignored"),
        bad=problems.append,
    )
    warnings = (*ignored, *[f"{name}: {problem}; {NOT_SET}" for problem in problems])
    return LastKnown(name, value, text, warnings, generation, bad_settings(problems))


def _kept_slo(text: str) -> LastKnown[NodeSLOSpec]:
    document = schema.parse_json(text)
    if not isinstance(document, dict) or not isinstance(document.get("generation"), int):
        raise SchemaError("", document, f"is no kept {NODE_SLO}")
    return _slo_word(document.get("spec"), document["generation"])


def _node_word(facts: NodeFacts) -> LastKnown[NodeFacts]:
    return LastKnown(f"{NODE} {facts.name}", facts, msgspec.json.encode(facts).decode())


def _kept_node(text: str) -> LastKnown[NodeFacts]:
    return _node_word(msgspec.json.decode(text, type=NodeFacts))
