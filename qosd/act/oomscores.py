"""Keeps the processes of containers at the OOM scores that strategies want, and gives them back.

A container is looked at when the opinion on it changes or the number of its tasks does, and every ``RECHECK_S`` for
processes that come from outside (``kubectl exec``): what a process forks has its score already. A tick at which nothing
is due costs a comparison of identity per strategy.

Invariants: ``plan`` changes nothing, and ``apply`` writes to no container that the plan did not show; the undo record
names a process, with what it had, before it is written; at most ``MOST_PROCESSES`` of a container are written at a
time. Nothing that the kernel does raises here. What it refuses is said once for each pod and reason, and tried again
after 1, 2, 4 … 60 seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from koord.host import oomscore, placement
from koord.host.cgroup import ReadError
from koord.host.files import Target
from koord.host.oomscore import SCORES, OOMScore, ScoredCgroup, ScoredProcess, count
from koord.host.placement import PROCESSES, Cgroup
from koord.host.reconcile.plan import DONE, REFUSED, UNREADABLE, Notice, Outcome, PlannedWrite, result_of
from koord.host.reconcile.reconciler import EARLIER_RUN
from koord.host.reconcile.state import NEVER_NS, backoff_ns
from koord.host.undo import UndoError, UndoRecord
from koord.host.writer import WriteError, Writer
from qosd.act.actor import Actor, ActReport, ExplainedAct, entry_of
from qosd.act.desired import DesiredActs
from qosd.act.journal import Recorder
from qosd.decide.runner import Decisions
from qosd.model.snapshot import PodView

RECHECK_S = 60.0
MOST_PROCESSES = 1024
_S = 1_000_000_000
_Wanted = tuple[str, OOMScore]
_log = logging.getLogger(__name__)


class ScoreState(msgspec.Struct, frozen=True):
    """What is known of one container between ticks. ``wanted`` None: an earlier run's, or to be given back.

    ``scored`` None: none of its processes was written.
    """

    owner: str
    pod: str = ""
    wanted: OOMScore | None = None
    scored: ScoredCgroup | None = None
    due_ns: int = 0
    failures: int = 0


class Finding(msgspec.Struct, frozen=True):
    """One container as a plan found it; ``found`` None: it is gone. ``state``: what was known, with what is wanted now.

    ``scored``: what is to be noted before ``processes`` are written. ``problem``: why it cannot be looked at.
    """

    cgroup: str
    state: ScoreState
    found: Cgroup | None = None
    scored: ScoredCgroup | None = None
    processes: tuple[ScoredProcess, ...] = ()
    act: PlannedWrite | None = None
    problem: str = ""

    @property
    def is_more(self) -> bool:
        """Are more to be written than may be at a time?"""
        return len(self.processes) == MOST_PROCESSES


class ScorePlan(msgspec.Struct, frozen=True):
    """The containers whose processes are to be written. The rest is for whoever does it."""

    desired: DesiredActs[OOMScore]
    findings: tuple[Finding, ...] = ()

    @property
    def writes(self) -> tuple[PlannedWrite, ...]:
        return tuple([finding.act for finding in self.findings if finding.act is not None])


class ScoreReport(ActReport, frozen=True, eq=False):
    """``held``: by cgroup, what is known."""

    held: Mapping[str, ScoreState]

    def of_pod(self, decisions: Decisions, pod: PodView) -> Iterable[ExplainedAct]:
        """The score of each container for which one is wanted."""
        cgroups = {container.cgroup for container in pod.containers if container.cgroup}
        for owner, wanted in decisions.acts(OOMScore):
            if wanted.cgroup in cgroups:
                state = self.held.get(wanted.cgroup)
                actual = "unknown" if state is None or state.failures else str(wanted.score)
                target = Target(wanted.cgroup, SCORES)
                path = "" if state is None or state.scored is None else state.scored.path
                yield ExplainedAct(target, path, owner, str(wanted.score), wanted.why, actual, wanted.pod)


class OOMScoreWriter(Actor[ScorePlan]):
    """Writes scores through ``writer``. One thread at a time."""

    def __init__(self, writer: Writer, undo: UndoRecord, journal: Recorder) -> None:
        self._writer, self._undo, self._journal = writer, undo, journal
        self._held = {
            one.cgroup: ScoreState(EARLIER_RUN, scored=one, due_ns=NEVER_NS) for one in undo.all(ScoredCgroup)
        }
        self._applied = DesiredActs(OOMScore)
        self._due_ns = NEVER_NS
        self._told: dict[str, str] = {}

    @property
    def follows(self) -> tuple[type[OOMScore]]:
        return (OOMScore,)

    @property
    def report(self) -> ScoreReport:
        return ScoreReport(self._held)

    def plan(self, decisions: Decisions) -> ScorePlan:
        """The writes that ``apply`` would make now. Reads kernel files; changes nothing."""
        desired = self._applied.now(decisions)
        is_new, is_due = not desired.are(self._applied), decisions.monotonic_ns >= self._due_ns
        if not (is_new or is_due):
            return ScorePlan(desired)
        wanted = _merged(desired)
        chosen = dict.fromkeys(self._changed(wanted, bool(desired.undecided)) if is_new else ())
        chosen.update(dict.fromkeys(self._due(decisions.monotonic_ns) if is_due else ()))
        states = {cgroup: self._state_of(cgroup, wanted.get(cgroup)) for cgroup in chosen}
        return ScorePlan(desired, tuple([self._examined(cgroup, states[cgroup], decisions) for cgroup in chosen]))

    def apply(self, decisions: Decisions, part: ScorePlan) -> tuple[Outcome, ...]:
        self._applied = part.desired
        outcomes = []
        held = dict(self._held) if part.findings else self._held
        for finding in part.findings:
            state, outcome = self._carried_out(decisions, finding)
            if outcome is not None:
                outcomes.append(outcome)
            if state is None:
                held.pop(finding.cgroup, None)
            else:
                held[finding.cgroup] = state
        if part.findings:
            self._held = held
            self._due_ns = min((state.due_ns for state in held.values()), default=NEVER_NS)
            subjects = {state.pod or cgroup for cgroup, state in held.items()}
            self._told = {subject: result for subject, result in self._told.items() if subject in subjects}
        return tuple(outcomes)

    def _changed(self, wanted: Mapping[str, _Wanted], some_undecided: bool) -> Iterator[str]:
        """Those on which the opinion is another than that acted on; an earlier run's stay until all have decided."""
        for cgroup, (_, score) in wanted.items():
            held = self._held.get(cgroup)
            before = None if held is None else held.wanted
            if before is None or (before.score, before.tasks) != (score.score, score.tasks):
                yield cgroup
        for cgroup, held in self._held.items():
            if cgroup not in wanted and not (held.owner == EARLIER_RUN and some_undecided):
                yield cgroup

    def _due(self, now_ns: int) -> Iterable[str]:
        return (cgroup for cgroup, held in self._held.items() if held.due_ns <= now_ns)

    def _state_of(self, cgroup: str, wanted: _Wanted | None) -> ScoreState:
        """What is known of ``cgroup``, with what is wanted of it now."""
        held = self._held.get(cgroup, ScoreState(""))
        if wanted is None:
            return replace(held, wanted=None)
        owner, score = wanted
        return replace(held, owner=owner, pod=score.pod, wanted=score)

    def _examined(self, cgroup: str, state: ScoreState, decisions: Decisions) -> Finding:
        try:
            found = placement.look(self._writer.tree, cgroup, PROCESSES)
            scored = state.scored
            if state.wanted is None:
                back = None if scored is None else oomscore.to_put_back(self._writer, scored)
                return self._finding(cgroup, state, found, scored, back or [], decisions)
            if found is None:
                return Finding(cgroup, state)
            scored = _noted(scored, cgroup, found, state.wanted.score)
            return self._finding(
                cgroup, state, found, scored, oomscore.to_score(self._writer, scored, found), decisions
            )
        except (ReadError, ValueError) as error:
            return Finding(cgroup, state, problem=str(error))

    def _finding(
        self,
        cgroup: str,
        state: ScoreState,
        found: Cgroup | None,
        scored: ScoredCgroup | None,
        processes: list[ScoredProcess],
        decisions: Decisions,
    ) -> Finding:
        processes = processes[:MOST_PROCESSES]
        if scored is None or not processes:
            return Finding(cgroup, state, found, state.scored)
        wanted, first = state.wanted, processes[0].original
        if wanted is None:
            before, after, why = scored.scores[0], first, self._why_released(state, decisions)
        else:
            scored = _with(scored, processes, oomscore.alive(self._writer, scored.processes))
            before, after, why = first, wanted.score, wanted.why
        why = f"{why}: {count(len(processes))}"
        path = scored.path
        act = PlannedWrite(Target(cgroup, SCORES), path, before, after, True, state.owner, why, pod=state.pod)
        return Finding(cgroup, state, found, scored, tuple(processes), act)

    def _why_released(self, state: ScoreState, decisions: Decisions) -> str:
        off = [result.sentence for result in decisions.results if result.name == state.owner and result.is_off]
        return f"back to what they had: {f'{state.owner} is {off[0]}' if off else 'no strategy wants a score any more'}"

    def _carried_out(self, decisions: Decisions, finding: Finding) -> tuple[ScoreState | None, Outcome | None]:
        state, now_ns = finding.state, decisions.monotonic_ns
        if finding.problem:
            self._say(decisions, finding, UNREADABLE, finding.problem)
            return self._again(state, now_ns), None
        if finding.act is None:
            return self._settled(finding, now_ns), None
        result, detail = self._attempt(finding)
        outcome = Outcome(finding.act, result, detail)
        scored = self._undo.find(ScoredCgroup, finding.cgroup)
        if result != DONE:
            self._say(decisions, finding, result, detail)
            return self._again(replace(state, scored=scored), now_ns), outcome
        self._journal.record(entry_of(decisions, finding.act, result, finding.act.why))
        return self._settled(msgspec.structs.replace(finding, scored=scored), now_ns), outcome

    def _settled(self, finding: Finding, now_ns: int) -> ScoreState | None:
        """Nothing is left to be done now; None: nothing is known of it any more."""
        state = replace(finding.state, scored=finding.scored, failures=0)
        if finding.is_more:
            return replace(state, due_ns=now_ns)
        if state.wanted is not None and finding.found is not None:
            return replace(state, due_ns=now_ns + int(RECHECK_S * _S))
        if state.scored is not None:
            self._forget(finding.cgroup)
        return None if state.wanted is None else replace(state, scored=None, due_ns=now_ns + int(RECHECK_S * _S))

    def _attempt(self, finding: Finding) -> tuple[str, str]:
        """Note, and write. The others are written although one is refused."""
        wanted, scored = finding.state.wanted, finding.scored
        assert scored is not None
        refused: Exception | None = None
        try:
            if wanted is not None:
                self._undo.note(scored)
            for process in finding.processes:
                try:
                    oomscore.write(self._writer, process.pid, process.original if wanted is None else wanted.score)
                except WriteError as error:
                    refused = refused or error
        except UndoError as error:
            return REFUSED, f"not written, because what to put back cannot be noted: {error}"
        return (DONE, "") if refused is None else (result_of(refused), str(refused))

    def _again(self, state: ScoreState, now_ns: int) -> ScoreState:
        failures = state.failures + 1
        return replace(state, failures=failures, due_ns=now_ns + backoff_ns(failures))

    def _say(self, decisions: Decisions, finding: Finding, result: str, why: str) -> None:
        """Once for each pod and kind of refusal: another process of it is refused for the same reason."""
        state = finding.state
        subject = state.pod or finding.cgroup
        if self._told.get(subject) == result:
            return
        self._told[subject] = result
        _log.warning("OOM scores of %s: %s: %s", subject, result, why)
        wanted = None if state.wanted is None else state.wanted.score
        notice = Notice(Target(finding.cgroup, SCORES), "", None, wanted, result, state.owner, why, pod=state.pod)
        self._journal.record(entry_of(decisions, notice, result, why))

    def _forget(self, cgroup: str) -> None:
        try:
            self._undo.drop(ScoredCgroup, cgroup)
        except UndoError as error:
            _log.warning("the OOM scores of %s stay in the undo record: %s", cgroup, error)


def _merged(desired: DesiredActs[OOMScore]) -> Mapping[str, _Wanted]:
    """Who wants what of each container: the first strategy that names it."""
    wanted: dict[str, _Wanted] = {}
    for owner, scores in desired.acts.items():
        for score in scores:
            wanted.setdefault(score.cgroup, (owner, score))
    return wanted


def _noted(scored: ScoredCgroup | None, cgroup: str, found: Cgroup, score: int) -> ScoredCgroup:
    """The note of the very cgroup that was found, with ``score`` as the newest."""
    if scored is None or not scored.is_of(found):
        return ScoredCgroup(cgroup, found.path, found.inode, (score,), score)
    return replace(scored, scores=tuple(dict.fromkeys((score, *scored.scores))))


def _with(
    scored: ScoredCgroup, processes: list[ScoredProcess], known: tuple[ScoredProcess, ...]
) -> ScoredCgroup:
    """The note with the processes that are about to be written, and of those that were the ones that still live."""
    named = {(each.pid, each.started): each for each in (*known, *processes)}
    original = scored.original if scored.processes else processes[0].original
    return replace(scored, original=original, processes=tuple(named.values()))
