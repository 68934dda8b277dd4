"""Explain: for each kernel file the decision, its inputs, the strategies behind it, and the other writes to it.

Three subjects: a pod (its own cgroup, its containers, and the files that Koord holds above them), the node (files of no
pod), one file. Inputs are answered with the formula's name, so that the result can be computed again from the answer
alone. It reads kernel files and the journal, so it runs in a thread. Invariant: a file that is gone is an answer
without ``actual``, never an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from koord.host.cgroup import ReadError, Tree, read_text
from koord.host.files import ROWS, Target, UnknownRow, Value, row
from koord.host.reconcile.plan import DONE, FOREIGN
from koord.host.reconcile.state import FREE, FileState
from koord.host.values import normalise
from koord.host.writer import Writer
from koord.http2.grpc import FAILED_PRECONDITION, INVALID_ARGUMENT, NOT_FOUND
from koord.http2.server import Refusal
from koord.pb.koord import inspect_pb2 as inspect
from qosd.act.composition import Composed
from qosd.act.journal import Journal, JournalEntry
from qosd.decide.decision import Op, Opinion
from qosd.decide.runner import StrategyResult
from qosd.inspect import acts, contested, convert
from qosd.inspect.inspector import Inspector
from qosd.model.snapshot import NodeSnapshot, PodView
from qosd.policy.scheduling import is_covered
from qosd.report import TickReport
from qosd.sense.store import SampleStore
from qosd.strategies import speakers
from qosd.tuning.advice import advise
from qosd.tuning.history import of_pod as history_of

_ALWAYS = ("cpuset_cpus", "cpu_quota", "cpu_shares", "memory_limit_in_bytes")
_HISTORY = 200


async def answer(inspector: Inspector, request: inspect.ExplainRequest) -> inspect.ExplainResponse:
    node = inspector.node
    head = inspect.ExplainResponse(inputs=inspector.loops(), warnings=inspector.warnings(), policy=inspector.policy())
    now_ns = inspector.wall()
    return await asyncio.to_thread(
        _explanation, inspector.report, request, head, node.writer, node.journal, node.sense.store, now_ns
    )


def _explanation(
    report: TickReport,
    request: inspect.ExplainRequest,
    daemon: inspect.ExplainResponse,
    writer: Writer,
    journal: Journal,
    store: SampleStore,
    now_ns: int,
) -> inspect.ExplainResponse:
    """Returns the explanation. ``daemon``: the daemon's own state, with the age of each input.

    ``writer`` tells how files are spelled, ``store`` has the samples for advice, ``now_ns`` is the wall clock. Raises
    Refusal for a pod or file that is not known, or before the first tick.
    """
    if report.snapshot is None:
        raise Refusal(FAILED_PRECONDITION, "there is no snapshot yet: ask again in a second")
    subject = request.WhichOneof("subject")
    view = _View(report, report.snapshot, daemon, writer, journal, now_ns)
    if subject == "pod":
        return _of_pods(view, _pods(report.snapshot, request.pod.namespace, request.pod.name), store)
    if subject == "node":
        return _of_node(view)
    if subject == "file":
        return _of_file(view, request.file)
    raise Refusal(INVALID_ARGUMENT, "explain what? a pod, the node or a file")


def _pods(snapshot: NodeSnapshot, namespace: str, name: str) -> list[PodView]:
    found = [pod for pod in snapshot.pods if pod.name == name and namespace in ("", pod.namespace)]
    if not found:
        where = f" in namespace {namespace}" if namespace else ""
        raise Refusal(NOT_FOUND, f"no pod {name}{where} on this node; koordctl pods lists them")
    return found


def _of_pods(view: _View, found: Sequence[PodView], store: SampleStore) -> inspect.ExplainResponse:
    targets: list[Target] = []
    history: list[JournalEntry] = []
    for pod in found:
        containers = [container.cgroup for container in pod.containers if container.cgroup and not container.is_sandbox]
        cgroups = {*containers, *(container.cgroup for container in pod.containers), pod.cgroup} - {""}
        targets += [target for target in view.targets if target.cgroup in cgroups or view.pod_of(target) == pod.key]
        targets += [Target(cgroup, name) for cgroup in containers for name in _ALWAYS]
        above = [target for target in view.targets if is_above(target.cgroup, pod.cgroup)]
        targets += above
        history += [entry for target in above for entry in view.history_of(target)]
        history += view.journal.query(pod=pod.key, limit=_HISTORY)
    message = view.explained(dict.fromkeys(targets), history, _bounding(view, found))
    message.files.extend(acts.of_pods(view.report, found, view.labels))
    message.pods.extend(convert.pod(pod, advise(history_of(view.report, store, pod))) for pod in found)
    return message


def is_above(cgroup: str, other: str) -> bool:
    """Returns whether ``cgroup`` is above ``other``; "", which is no cgroup, is above none."""
    return bool(cgroup) and other != cgroup and other.startswith(f"{cgroup.rstrip('/')}/")


def _bounding(view: _View, found: Sequence[PodView]) -> frozenset[str]:
    """Returns the strategies that bound one of the pods as they bound all best-effort ones."""
    if not any(is_covered(pod, view.snapshot.policy.node) for pod in found):
        return frozenset()
    return frozenset(result.name for result in view.report.decisions.results if result.decision.best_effort is not None)


def _of_node(view: _View) -> inspect.ExplainResponse:
    targets = [target for target in view.targets if target.cgroup not in view.labels and not view.pod_of(target)]
    history = [entry for target in targets for entry in view.history_of(target)]
    message = view.explained(targets, history)
    del message.strategies[:], message.inputs[:]
    message.strategies.extend(convert.strategies(view.report.decisions))
    message.inputs.extend(view.daemon.inputs)
    return message


def _of_file(view: _View, name: str) -> inspect.ExplainResponse:
    target = next((target for target in view.targets if name in view.names(target)), None)
    target = target or target_of(view.tree, name)
    if target is None:
        raise Refusal(NOT_FOUND, f"{name}: Koord knows no such kernel file on cgroup v{view.tree.version}")
    return view.explained([target], view.history_of(target))


def target_of(tree: Tree, file: str) -> Target | None:
    """Returns the target whose file is ``file``: its path, or ``<cgroup>/<row name>``, where a file of no cgroup has
    "".
    """
    cgroup, _, name = file.rpartition("/")
    path = Path(file)
    for system in (Target("", each.name) for each in ROWS.values() if each.system is not None):
        if file in (f"/{system.name}", str(tree.path(system))) and not ROWS[system.name].takes:
            return system
    if name in ROWS and tree.exists(cgroup or "/"):
        return Target(cgroup or "/", name)
    for known in ROWS.values():
        for_write = known.file_name(tree.version, for_write=True) == path.name
        if not for_write and known.file_name(tree.version) != path.name:
            continue
        top = tree.path(Target("/", known.name), for_write)
        if top is not None and path.is_relative_to(top.parent) and path.exists():
            return Target(f"/{path.parent.relative_to(top.parent)}", known.name)
    return None


class _View:
    """The data of one answer: the report, and for each file its speakers and its pod."""

    def __init__(
        self,
        report: TickReport,
        snapshot: NodeSnapshot,
        daemon: inspect.ExplainResponse,
        writer: Writer,
        journal: Journal,
        now_ns: int,
    ) -> None:
        self.report, self.snapshot, self.daemon, self.now_ns = report, snapshot, daemon, now_ns
        self.writer, self.tree, self.journal = writer, writer.tree, journal
        self.labels = convert.labels(snapshot)
        self._speakers: dict[Target, list[StrategyResult]] = {}
        for result in sorted(report.decisions.results, key=lambda result: result.stage):
            for target in result.opinions:
                self._speakers.setdefault(target, []).append(result)
        known = {*self._speakers, *report.files.owned}
        self.targets = sorted(known, key=lambda target: (target.cgroup, target.name))

    def pod_of(self, target: Target) -> str:
        """Returns ``namespace/name`` of the file's pod, by its cgroup or by its opinions; "" = the node's."""
        opinions = (result.opinions[target] for result in self._speakers.get(target, ()))
        return self.labels.get(target.cgroup, ("", ""))[0] or next((each.pod for each in opinions if each.pod), "")

    def names(self, target: Target) -> set[str]:
        """Returns the names that people may use for the file."""
        paths = (self.tree.path(target, for_write) for for_write in (True, False))
        return {f"{target.cgroup}/{target.name}", *(str(path) for path in paths if path is not None)}

    def history_of(self, target: Target) -> Sequence[JournalEntry]:
        path = self.tree.path(target, for_write=True)
        return () if path is None else self.journal.query(file=str(path), limit=_HISTORY)

    def explained(
        self, targets: Iterable[Target], history: Sequence[JournalEntry], bounding: frozenset[str] = frozenset()
    ) -> inspect.ExplainResponse:
        """Returns the files, with the strategies that speak of them, those that are ``bounding`` their pod, and what
        all of these need.
        """
        by_path: dict[str, list[JournalEntry]] = {}
        for entry in history:
            by_path.setdefault(entry.path, []).append(entry)
        wanted = list(targets)
        speaking = bounding.union(result.name for target in wanted for result in self._speakers.get(target, ()))
        needed = {need for strategy in speakers() if strategy.name in speaking for need in strategy.needs}
        return inspect.ExplainResponse(
            observed_unix_ns=self.snapshot.wall_ns,
            files=[self._file(target, by_path) for target in wanted],
            strategies=[each for each in convert.strategies(self.report.decisions) if each.name in speaking],
            inputs=[loop for loop in self.daemon.inputs if loop.name in needed],
            warnings=self.daemon.warnings,
            policy=self.daemon.policy,
        )

    def _file(self, target: Target, by_path: dict[str, list[JournalEntry]]) -> inspect.ExplainedFile:
        path, files = self.tree.path(target, for_write=True), self.report.files
        state = files.states.get(target, FREE)
        composed = files.composed(target)
        name, text = convert.formula(composed.inputs) if composed else ("", "")
        result = None if composed is None or composed.value is None else str(composed.value)
        entries = by_path.get(str(path), [])
        return inspect.ExplainedFile(
            path="" if path is None else str(path),
            cgroup=target.cgroup,
            name=target.name,
            unit=convert.unit_of(target.name),
            pod=self.pod_of(target),
            container=self.labels.get(target.cgroup, ("", ""))[1],
            owner=composed.by if result is not None and composed else state.by if state.is_held else "",
            formula=name,
            formula_text=text,
            inputs=convert.inputs(composed.inputs) if composed else (),
            result=result,
            why=composed.why if composed else "",
            opinions=self._opinions(target, composed),
            actual=self._actual(target, result),
            base=str(state.base) if state.is_held else None,
            base_from=self._base_from(target, state),
            before=_before(entries),
            age_s=self._age_s(state),
            contested=contested.sentence(self.report, target),
            foreign=[self._foreign(entry) for entry in entries if entry.result == FOREIGN],
        )

    def _opinions(self, target: Target, composed: Composed | None) -> list[inspect.Opinion]:
        """Returns the opinions in the order of composition; those that do not count say why."""
        values = {step.strategy: step.value for step in composed.trail} if composed else {}
        refused = dict(self.report.files.refused.get(target, ()))
        return [
            _opinion(result, result.opinions[target], values.get(result.name), refused.get(result.name, ""))
            for result in self._speakers.get(target, ())
        ]

    def _actual(self, target: Target, desired: str | None) -> str | None:
        """Returns the kernel's value in CRI's spelling; the desired text if that means the same."""
        text = self._text(target)
        if text is None:
            return None
        page_bytes = self.snapshot.policy.host.page_bytes
        return normalise(row(target.name), self.tree.version, text, desired, page_bytes, self.writer.weights)

    def _text(self, target: Target) -> str | None:
        try:
            path = self.tree.path(target)
            text = None if path is None else read_text(path)
            return text if path is None or text is None else self.writer.as_made(target, path, text)
        except (ReadError, UnknownRow):
            return None

    def _age_s(self, state: FileState) -> float | None:
        """Returns the age at the snapshot, by its monotonic clock: the wall clock may have been set since."""
        if not state.is_held or not state.since_ns:
            return None
        return max(0.0, (self.snapshot.monotonic_ns - state.since_ns) / 1e9)

    def _base_from(self, target: Target, state: FileState) -> str:
        """Returns where the base of a file comes from that the runtime wrote for us; "" where the base was read."""
        original = self.report.files.original(target)
        if not state.is_held or original is None or original.requested != state.base:
            return ""
        return f"kubelet requested it; the container was made with {original.edited}"

    def _foreign(self, entry: JournalEntry) -> inspect.Foreign:
        value = "" if entry.after is None else str(entry.after)
        age_s = max(0.0, (self.now_ns - entry.wall_ns) / 1e9)
        return inspect.Foreign(unix_ns=entry.wall_ns, age_s=age_s, value=value, detail=entry.why)


def _before(entries: Sequence[JournalEntry]) -> str | None:
    """Returns the file's content before the newest write that was carried out."""
    newest = next((entry for entry in entries if entry.result == DONE), None)
    return None if newest is None or newest.before is None else str(newest.before)


def _opinion(by: StrategyResult, opinion: Opinion, value_after: Value | None, refused: str) -> inspect.Opinion:
    value = f"{float(opinion.value):g}" if opinion.op is Op.SCALE and opinion.value is not None else opinion.value
    name, text = convert.formula(opinion.inputs)
    return inspect.Opinion(
        stage=by.stage.name.lower(),
        strategy=by.name,
        kind=opinion.op.value,
        value="" if value is None else str(value),
        why=opinion.why,
        formula=name,
        formula_text=text,
        inputs=convert.inputs(opinion.inputs),
        result=None if value_after is None else str(value_after),
        refused=refused,
    )
