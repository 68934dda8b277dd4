"""Explain: for each kernel file what is decided, from which inputs, by whom, and what else happened to it.

Three subjects: a pod (its own cgroup and its containers), the node (files of no pod), one file. Inputs are answered
with the formula's name, so that the result can be computed again from the answer alone. It reads kernel files and the
journal, so it runs in a thread. Invariant: a file that is gone is an answer without ``actual``, never an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from koord.host import cgroup
from koord.host.cgroup import ReadError, Tree
from koord.host.files import ROWS, Target, UnknownRow, Value, row
from koord.host.reconcile.plan import DONE, FOREIGN
from koord.host.reconcile.state import FileState
from koord.host.values import normalise
from koord.http2.grpc import FAILED_PRECONDITION, INVALID_ARGUMENT, NOT_FOUND
from koord.http2.server import Refusal
from koord.pb.koord import inspect_pb2 as inspect
from qosd.act.composition import Composed
from qosd.act.journal import Entry
from qosd.decide.decision import Op, Opinion
from qosd.decide.runner import StrategyResult
from qosd.inspect import acts, contested, convert, pods
from qosd.inspect.decided import Decided
from qosd.inspect.sources import Sources
from qosd.snapshot import NodeSnapshot, PodView

_ALWAYS = ("cpuset_cpus", "cpu_quota", "cpu_shares", "memory_limit_in_bytes")
_HISTORY = 200


def answer(sources: Sources, request: inspect.ExplainRequest, now_ns: int) -> inspect.ExplainResponse:
    """``now_ns``: wall clock. Raises Refusal for a pod or file that is not known, or before the first snapshot."""
    snapshot = sources.snapshot()
    if snapshot is None:
        raise Refusal(FAILED_PRECONDITION, "there is no snapshot yet: ask again in a second")
    subject = request.WhichOneof("subject")
    view = _View(sources, snapshot, now_ns)
    if subject == "pod":
        return _of_pods(view, _pods(snapshot, request.pod.namespace, request.pod.name))
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


def _of_pods(view: _View, found: Sequence[PodView]) -> inspect.ExplainResponse:
    targets: list[Target] = []
    history: list[Entry] = []
    for pod in found:
        containers = [container.group for container in pod.containers if container.group and not container.is_sandbox]
        groups = {*containers, *(container.group for container in pod.containers), pod.group} - {""}
        targets += [target for target in view.targets if target.group in groups or view.pod_of(target) == pod.key]
        targets += [Target(group, name) for group in containers for name in _ALWAYS]
        history += view.sources.journal.query(pod=pod.key, limit=_HISTORY)
    message = view.explained(dict.fromkeys(targets), history)
    message.files.extend(acts.of_pods(view.sources, view.snapshot, view.decided.results, found))
    message.pods.extend(pods.head(pod) for pod in found)
    return message


def _of_node(view: _View) -> inspect.ExplainResponse:
    targets = [target for target in view.targets if target.group not in view.labels and not view.pod_of(target)]
    history = [entry for target in targets for entry in view.history_of(target)]
    message = view.explained(targets, history)
    message.files.extend(acts.of_node(view.sources, view.decided.results))
    del message.strategies[:], message.inputs[:]
    message.strategies.extend(map(convert.strategy, view.decided.results))
    message.inputs.extend(map(convert.loop, view.sources.loops()))
    return message


def _of_file(view: _View, name: str) -> inspect.ExplainResponse:
    target = next((target for target in view.targets if name in view.names(target)), None)
    target = target or target_of(view.sources.tree, name)
    if target is None:
        raise Refusal(NOT_FOUND, f"{name}: Koord knows no such kernel file on cgroup v{view.sources.tree.version}")
    return view.explained([target], view.history_of(target))


def target_of(tree: Tree, file: str) -> Target | None:
    """The target whose file is ``file``: a path in the cgroup tree, or ``<cgroup>/<row name>``."""
    group, _, name = file.rpartition("/")
    if name in ROWS and tree.exists(group or "/"):
        return Target(group or "/", name)
    path = Path(file)
    for known in ROWS.values():
        for_write = known.file_name(tree.version, for_write=True) == path.name
        if not for_write and known.file_name(tree.version) != path.name:
            continue
        top = tree.path(Target("/", known.name), for_write)
        if top is not None and path.is_relative_to(top.parent) and path.exists():
            return Target(f"/{path.parent.relative_to(top.parent)}", known.name)
    return None


class _View:
    """One answer's picture: the snapshot, what is decided of each file, and what the actuator holds."""

    def __init__(self, sources: Sources, snapshot: NodeSnapshot, now_ns: int) -> None:
        self.sources, self.snapshot, self.now_ns = sources, snapshot, now_ns
        self.decided = Decided(sources)
        self.targets = self.decided.targets
        self.refused = sources.files.refused
        self.labels = convert.labels(snapshot)

    def pod_of(self, target: Target) -> str:
        """``namespace/name`` whose file it is; "" = the node's."""
        return self.labels.get(target.group, ("", ""))[0] or self.decided.pod_of(target)

    def names(self, target: Target) -> set[str]:
        """What people may call the file."""
        paths = (self.sources.tree.path(target, for_write) for for_write in (True, False))
        return {f"{target.group}/{target.name}", *(str(path) for path in paths if path is not None)}

    def history_of(self, target: Target) -> Sequence[Entry]:
        path = self.sources.tree.path(target, for_write=True)
        return () if path is None else self.sources.journal.query(file=str(path), limit=_HISTORY)

    def explained(self, targets: Iterable[Target], history: Sequence[Entry]) -> inspect.ExplainResponse:
        """The files, with the strategies that speak of them and what those strategies need."""
        by_path: dict[str, list[Entry]] = {}
        for entry in history:
            by_path.setdefault(entry.path, []).append(entry)
        wanted = list(targets)
        speaking = {result.name for target in wanted for result in self.decided.speakers(target)}
        needed = {need for strategy in self.sources.strategies if strategy.name in speaking for need in strategy.needs}
        return inspect.ExplainResponse(
            observed_unix_ns=self.snapshot.wall_ns,
            files=[self._file(target, by_path) for target in wanted],
            strategies=[convert.strategy(result) for result in self.decided.results if result.name in speaking],
            inputs=[convert.loop(loop) for loop in self.sources.loops() if loop.name in needed],
            warnings=self.sources.warnings(),
            policy=convert.policy(self.sources.policy()),
        )

    def _file(self, target: Target, by_path: dict[str, list[Entry]]) -> inspect.ExplainedFile:
        path = self.sources.tree.path(target, for_write=True)
        state = self.decided.owned.get(target)
        composed = self.sources.files.composed(target)
        name, text = convert.formula(composed.inputs) if composed else ("", "")
        result = None if composed is None or composed.value is None else str(composed.value)
        entries = by_path.get(str(path), [])
        return inspect.ExplainedFile(
            path="" if path is None else str(path),
            group=target.group,
            name=target.name,
            unit=convert.unit_of(target.name),
            pod=self.pod_of(target),
            container=self.labels.get(target.group, ("", ""))[1],
            owner=composed.by if result is not None and composed else state.by if state else "",
            formula=name,
            formula_text=text,
            inputs=convert.inputs(composed.inputs) if composed else (),
            result=result,
            why=composed.why if composed else "",
            opinions=self._opinions(target, composed),
            actual=self._actual(target, result),
            base=None if state is None else str(state.base),
            base_from=self._base_from(target, state),
            before=_before(entries),
            age_s=self._age_s(state),
            contested=contested.sentence(self.sources, target),
            foreign=[self._foreign(entry) for entry in entries if entry.result == FOREIGN],
        )

    def _opinions(self, target: Target, composed: Composed | None) -> list[inspect.Opinion]:
        """In the order of composition; those that do not count say why."""
        values = {step.who: step.value for step in composed.trail} if composed else {}
        refused = dict(self.refused.get(target, ()))
        return [
            _opinion(result, result.opinions[target], values.get(result.name), refused.get(result.name, ""))
            for result in self.decided.speakers(target)
        ]

    def _actual(self, target: Target, desired: str | None) -> str | None:
        """What the kernel holds, in CRI's spelling; the desired text if that means the same."""
        text = self._text(target)
        if text is None:
            return None
        page_bytes = self.snapshot.rules.host.page_bytes
        writer = self.sources.writer
        return normalise(row(target.name), writer.version, text, desired, page_bytes, writer.weights)

    def _text(self, target: Target) -> str | None:
        try:
            path = self.sources.tree.path(target)
            text = None if path is None else cgroup.read_text(path)
            return text if path is None or text is None else self.sources.writer.as_made(target, path, text)
        except (ReadError, UnknownRow):
            return None

    def _age_s(self, state: FileState | None) -> float | None:
        """As of the snapshot, by its monotonic clock: the wall clock may have been set since."""
        if state is None or not state.since_ns:
            return None
        return max(0.0, (self.snapshot.monotonic_ns - state.since_ns) / 1e9)

    def _base_from(self, target: Target, state: FileState | None) -> str:
        """Of a file that the runtime wrote for us; "" where the base was read."""
        original = self.sources.files.original(target)
        if state is None or original is None or original.requested != state.base:
            return ""
        return f"kubelet requested it; the container was made with {original.edited}"

    def _foreign(self, entry: Entry) -> inspect.Foreign:
        value = "" if entry.after is None else str(entry.after)
        age_s = max(0.0, (self.now_ns - entry.wall_ns) / 1e9)
        return inspect.Foreign(unix_ns=entry.wall_ns, age_s=age_s, value=value, detail=entry.why)


def _before(entries: Sequence[Entry]) -> str | None:
    """What the file held before the newest write that was carried out."""
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
