"""The node's pods, kept current: one list after each hint that something happened, and a slow one besides.

Hints are the cgroup tree's events, the runtime's own where it broadcasts them, and calls of `refetch`. They are
coalesced: at most one list runs, and lists begin at least ``GAP_S`` apart. While tree and runtime differ, the runtime
is asked again soon (`settling`). Without hints a list is made every ``SLOW_S``, or every ``POLL_S`` where no source
gives hints. A tree without containers may be the wrong one, so it counts for nothing yet.

Invariants: ``current`` is the same tuple, and an unchanged pod in it the same view, until something changes. ``ages_s``
are the ages of the answers that ``current`` holds. A newer answer counts once it is merged: before that, a node whose
kubelet is slow would seem to have no pods. The last answer of a source that fails stays and grows old: ``ages_s`` and
``problems`` say so, and its pods stay. The list waits for kubelet's first answer, since facts that only kubelet knows
would otherwise come and go at a restart. It waits for no later answer longer than ``KUBELET_WAIT_S``. Nothing here
raises after construction but `CancelledError`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path

from koord.model.qos import DerivationRules
from qosd.model.pod import RuntimeRequest
from qosd.model.snapshot import PodView
from qosd.pods.cri import CRIClient, RuntimeUnreachable, RuntimeVersion
from qosd.pods.events import RuntimeEvents
from qosd.pods.http import FetchError
from qosd.pods.kubelet import KubeletPod
from qosd.pods.lists import RuntimeLists
from qosd.pods.merge import Merger, unknown_to
from qosd.pods.podlists import PodLister
from qosd.pods.settling import Settling
from qosd.pods.watch import CgroupWatch

GAP_S = 0.05
SETTLE_S = 0.1
SLOW_S, POLL_S = 60.0, 10.0
RETRY_S = 2.0
WRITES_S, WRITES_GAP_S = 0.2, 5.0
KUBELET_S, KUBELET_GAP_S = 30.0, 1.0
KUBELET_WAIT_S = 0.1
RUNTIME, KUBELET, TREE = "runtime", "kubelet", "tree"
_NOTHING: Set[str] = frozenset()
log = logging.getLogger(__name__)


class PodSource:
    """Merges ``runtime`` and ``kubelet`` (at least one of them).

    ``derivation()``: how unlabelled Guaranteed pods count now. ``changed()``: ``current`` is another tuple.
    ``modified(path)``: a process, perhaps this one, wrote that file in a watched cgroup directory. ``owns(path)``:
    whether this process writes that file itself; a write to any other file of a container means that the runtime may
    have been asked for other resources. ``period_us(cgroup)``: the CFS period that it has.
    """

    def __init__(
        self,
        runtime: CRIClient | None,
        kubelet: PodLister | None,
        derivation: Callable[[], DerivationRules],
        changed: Callable[[], None],
        *,
        modified: Callable[[str], None] = lambda path: None,
        owns: Callable[[str], bool] = lambda path: False,
        period_us: Callable[[str], int | None] = lambda cgroup: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._runtime, self._kubelet, self._derivation = runtime, kubelet, derivation
        self._changed, self._modified, self._owns = changed, modified, owns
        self._watch: CgroupWatch | None = None
        self._root = ""
        self._lists = None if runtime is None else RuntimeLists(runtime, self._exists)
        self._merger, self._settling = Merger(period_us), Settling()
        self._kubelet_pods: Mapping[str, KubeletPod] = {}
        self._hint, self._busy = asyncio.Event(), asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._answered_s: dict[str, float] = {}
        self._published_s: dict[str, float] = {}
        """When each source gave the answer that ``current`` holds."""
        self._asked_kubelet_s = self._rechecked_s = float("-inf")
        self._failures: dict[str, str] = {}
        self._unreadable: tuple[str, ...] = ()
        self._written_cgroups: set[str] = set()
        self._refetching: asyncio.TimerHandle | None = None
        self._refetched_s = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._events = None if runtime is None else RuntimeEvents(runtime, self._on_event)
        self._version: RuntimeVersion | None = None
        self.cgroup_driver = ""
        """ "systemd" or "cgroupfs" as the runtime says it; "" while it does not (containerd < 2.0)."""
        self.current: tuple[PodView, ...] = ()

    # life

    def follow(self, root: Path, tiers: Sequence[str]) -> None:
        """Watches the hierarchy at ``root`` (v1: the cpu controller's) with kubelet's ``tiers``, and no other."""
        if self._watch is not None:
            self._watch.close()
        self._root = str(root)
        self._watch = CgroupWatch(self._loop, root, tiers, self._hint.set, self._written)
        self._watch.start()
        self._hint.set()

    def start(self) -> None:
        self._tasks.append(self._loop.create_task(self._keep_current(), name="pods"))
        if self._events is not None:
            self._tasks.append(self._loop.create_task(self._events.run(), name="pods: runtime events"))

    async def close(self) -> None:
        tasks = [*self._tasks, *([] if self._asking is None else [self._asking])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        if self._refetching is not None:
            self._refetching.cancel()
        if self._watch is not None:
            self._watch.close()
        if self._runtime is not None:
            self._runtime.close()

    # what is known

    @property
    def ages_s(self) -> Mapping[str, float]:
        """Returns the seconds since ``runtime`` and ``kubelet`` told what ``current`` holds; absent = never."""
        now_s = self._loop.time()
        return {name: now_s - then_s for name, then_s in self._published_s.items()}

    @property
    def age_s(self) -> float | None:
        """Returns the age of the answer that the pods come from: the runtime's, or without a runtime kubelet's; None =
        never.
        """
        return self.ages_s.get(KUBELET if self._runtime is None else RUNTIME)

    @property
    def problems(self) -> tuple[str, ...]:
        """Returns why a source is old, lacks a pod, or hints are missing, one sentence each."""
        tree = "" if self._watch is None else self._watch.problem
        return tuple(filter(None, (*self._failures.values(), *self._unreadable, tree)))

    @property
    def hints(self) -> tuple[str, ...]:
        """Returns the sources that tell of new pods at once: "tree", "runtime"; without any, pods are polled."""
        watched = self._watch is not None and not self._watch.problem
        return (TREE,) * watched + (RUNTIME,) * (self._events is not None and self._events.heard)

    @property
    def watches(self) -> int:
        """Returns how many cgroup directories are watched."""
        return 0 if self._watch is None else self._watch.watches

    @property
    def version(self) -> RuntimeVersion | None:
        return self._version

    def as_listed(self, request: RuntimeRequest) -> RuntimeRequest:
        """Returns ``request`` with what kubelet's list says of its pod, if it has that."""
        pod = self._kubelet_pods.get(request.uid)
        return request if pod is None else pod.completed(request)

    # calls of others

    def hint(self) -> None:
        """Lists soon, as something may have happened."""
        self._hint.set()

    def refetch(self, cgroups: Sequence[str]) -> None:
        """Fetches details of these cgroups again: another process changed values, so the runtime may have been asked
        to.
        """
        if self._lists is not None and cgroups:
            wanted = set(cgroups)
            self._lists.stale([view.id for pod in self.current for view in pod.containers if view.cgroup in wanted])
            self._hint.set()

    async def refresh(self, *, recheck: bool = False) -> None:
        """Asks now and waits for the answer; ``recheck``: also for some details without a hint."""
        async with self._busy:
            if self._watch is not None and self._watch.problem and recheck:
                self._watch.rescan()
            asking = self._ask_kubelet_besides()
            await self._ask_runtime(recheck)
            await self._kubelets_part(asking)
            self._publish()

    # the loop

    async def _keep_current(self) -> None:
        while True:
            self._hint.clear()
            now_s = self._loop.time()
            recheck = now_s - self._rechecked_s >= self._slow_s
            if recheck:
                self._rechecked_s = now_s
            try:
                await self.refresh(recheck=recheck)
                await asyncio.sleep(GAP_S)
                pause_s = self._pause_s() - GAP_S
            except Exception:  # the root of a task: one list is lost, not all that follow
                log.exception("listing pods failed")
                await asyncio.sleep(RETRY_S)
                continue
            await self._hinted(pause_s)

    async def _hinted(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._hint.wait()
        except TimeoutError:
            pass

    @property
    def _slow_s(self) -> float:
        return SLOW_S if RUNTIME in self.hints or (self.hints and self._directories) else POLL_S

    def _pause_s(self) -> float:
        """Returns the seconds until the next list if there is no hint before."""
        if RUNTIME in self._failures:
            return RETRY_S
        tiers = _NOTHING if self._watch is None else self._watch.tiers
        if self._settling.unsettled(self.current, self._directories, tiers, self._unlisted(), self._loop.time()):
            return SETTLE_S
        return min(self._slow_s, KUBELET_S if self._kubelet is not None else SLOW_S)

    async def _ask_runtime(self, recheck: bool) -> None:
        if self._runtime is None or self._lists is None:
            return
        try:
            if self._version is None:
                self.cgroup_driver = await self._runtime.cgroup_driver() or ""
                self._version = await self._runtime.version()
            await self._lists.refresh(recheck)
        except RuntimeUnreachable as error:
            self._version = None  # another may answer next time
            self._failed(RUNTIME, str(error))
        else:
            self._succeeded(RUNTIME)

    def _ask_kubelet_besides(self) -> asyncio.Task[None]:
        """Returns the request to kubelet that is under way, or a new one."""
        if self._asking is None or self._asking.done():
            self._asking = self._loop.create_task(self._ask_kubelet(), name="pods: kubelet")
        return self._asking

    async def _kubelets_part(self, asking: asyncio.Task[None]) -> None:
        """Waits for kubelet's answer, if it is the first or comes soon; a later one makes another list."""
        is_known = KUBELET in self._answered_s or KUBELET in self._failures
        await asyncio.wait((asking,), timeout=KUBELET_WAIT_S if is_known else None)
        if asking.done():
            asking.result()
        else:
            asking.add_done_callback(lambda _: self._hint.set())

    async def _ask_kubelet(self) -> None:
        """Asks kubelet when its answer is old, or when there is a pod that it has not told of yet."""
        if self._kubelet is None:
            return
        age_s = self._loop.time() - self._asked_kubelet_s
        wanted = self._runtime is None or age_s >= KUBELET_S or bool(self._unlisted())
        if age_s < KUBELET_GAP_S or not wanted:
            return
        self._asked_kubelet_s = self._loop.time()
        try:
            listed = await self._kubelet.pods()
        except FetchError as error:
            self._failed(KUBELET, str(error))
            return
        if not listed.items and any(pod.uid in self._kubelet_pods and pod.sandbox_id for pod in self.current):
            self._failed(
                KUBELET, f"{self._kubelet.address}/pods: lists no pods, but the runtime still has some of them"
            )
            return
        self._kubelet_pods = {pod.uid: pod for pod in listed.items}
        self._report_unreadable(listed.problems)
        self._succeeded(KUBELET)

    def _report_unreadable(self, problems: Sequence[str]) -> None:
        problems = tuple([f"kubelet's pod list: {problem}" for problem in problems])
        for problem in problems:
            if problem not in self._unreadable:
                log.warning("%s", problem)
        self._unreadable = problems

    def _publish(self) -> None:
        pods = self._merger.merge(
            self._lists if self._lists is not None and self._lists.told else None,
            self._kubelet_pods,
            self._pod_cgroups,
            self._directories,
            self._derivation(),
            self._version,
        )
        self._published_s = dict(self._answered_s)
        if pods is not self.current:
            self.current = pods
            self._changed()

    def _succeeded(self, source: str) -> None:
        self._answered_s[source] = self._loop.time()
        if self._failures.pop(source, None) is not None:
            log.info("%s answers again", source)

    def _failed(self, source: str, why: str) -> None:
        if source not in self._failures:
            log.warning("pods stay as they are: %s", why)
        self._failures[source] = why

    # hints

    def _on_event(self, id_: str) -> None:
        if self._lists is not None:
            self._lists.stale([id_])
        self._hint.set()

    @property
    def _directories(self) -> Set[str]:
        return _NOTHING if self._watch is None else self._watch.containers

    @property
    def _pod_cgroups(self) -> Set[str]:
        return _NOTHING if self._watch is None else self._watch.pods

    def _unlisted(self) -> set[str]:
        """Returns the UIDs of pods that kubelet has not told of, though it was asked."""
        return set() if self._kubelet is None else unknown_to(self._kubelet_pods, self.current, self._pod_cgroups)

    def _exists(self, cgroup: str) -> bool:
        return cgroup in self._directories

    def _written(self, path: str) -> None:
        self._modified(path)
        cgroup = path.removeprefix(self._root).rpartition("/")[0]
        if self._exists(cgroup) and not self._owns(path):
            self._written_cgroups.add(cgroup)
            if self._refetching is None:
                wait_s = max(WRITES_S, self._refetched_s + WRITES_GAP_S - self._loop.time())
                self._refetching = self._loop.call_later(wait_s, self._refetch_written)

    def _refetch_written(self) -> None:
        """Fetches details once for many writes: one update by a runtime is several, and an agent may write every
        second.
        """
        self._refetching, self._refetched_s = None, self._loop.time()
        self.refetch(tuple(self._written_cgroups))
        self._written_cgroups.clear()
