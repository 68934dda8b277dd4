"""The Plugin service: answers the runtime's calls to a plugin by the hook engine.

Invariants: no pod can make a call fail (bad annotations are logged and treated as absent, an error of our own is
logged and answered with "no edits"), and every answer is made in one go, so the runtime, which holds a lock
meanwhile, never waits for anything else of qosd's. While another front end acts, answers carry no edits.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from koord.host.originals import Pending
from koord.model.slices import from_cgroups_path
from koord.pb.nri import api_pb2 as nri
from qosd.accounting import account
from qosd.hooks import engine
from qosd.hooks.edits import Edits
from qosd.metrics import Metrics
from qosd.model.besteffort import BestEffortLimits
from qosd.model.pod import HookStage, PodContext, RuntimeRequest
from qosd.model.policy import EffectivePolicy
from qosd.nri import mux, translate
from qosd.nri.connection import Method
from qosd.originals import OriginalsRecorder

SERVICE = "nri.pkg.api.v1alpha1.Plugin"
SYNCHRONIZE = "Synchronize"
CALLER = "nri"  # label of koord_qosd_hook_calls
_WANTED = (
    nri.RUN_POD_SANDBOX,
    nri.REMOVE_POD_SANDBOX,
    nri.CREATE_CONTAINER,
    nri.START_CONTAINER,
    nri.POST_START_CONTAINER,
    nri.UPDATE_CONTAINER,
    nri.POST_UPDATE_CONTAINER,
    nri.POST_UPDATE_POD_SANDBOX,
)
_LAST_EVENT = nri.REMOVE_CONTAINER  # of every version
_LAST_EVENT_SINCE = ((0, 10), nri.VALIDATE_CONTAINER_ADJUSTMENT)
_ROOM_BYTES = mux.MAX_SENT_BYTES - mux.CHUNK_BYTES  # for updates in one answer

Result = TypeVar("Result")
_log = logging.getLogger(__name__)


def events(nri_version: str) -> int:
    """Returns the mask of the events that we subscribe to. A bit that a runtime of ``nri_version`` ("" = before 0.12)
    does not know would make it refuse us.
    """
    found = re.match(r"v?(\d+)\.(\d+)", nri_version)
    since, newest = _LAST_EVENT_SINCE
    last = newest if found and (int(found[1]), int(found[2])) >= since else _LAST_EVENT
    return sum(1 << (event - 1) for event in _WANTED if event <= last)


@dataclass(frozen=True, slots=True)
class Peer:
    """The runtime, as it introduced itself. ``nri_version`` is "" before 0.12, ``request_timeout_s`` 0 before 0.8."""

    runtime: str
    runtime_version: str
    nri_version: str
    request_timeout_s: float

    def __str__(self) -> str:
        nri_version = f", NRI {self.nri_version}" if self.nri_version else ""
        return f"{self.runtime} {self.runtime_version}{nri_version}"


class Hooks:
    """Decides by the policy and the limits that ``policy()`` and ``limits()`` return at that moment, if ``acting()``;
    ``clock`` is monotonic seconds.

    ``parent_sets``: see translate. ``announced`` is called with a pod whose containers come next, before the runtime
    goes on; ``pods_changed`` afterwards, when a pod or a container came, went or was changed by another writer: a hint
    for the reconciler, which does the rest. ``later`` runs work that no pod has to wait for. ``originals`` notes the
    values that a container's edits replace, before they are answered; None = they are not needed.
    ``has_resctrl_group``: is the resctrl group there at this moment? ``as_listed`` adds the pod list's facts to a
    request.
    """

    def __init__(
        self,
        in_force: Callable[[], tuple[EffectivePolicy, BestEffortLimits]],
        metrics: Metrics,
        acting: Callable[[], bool],
        parent_sets: translate.ParentSets,
        announced: Callable[[PodContext], object] = lambda pod: None,
        pods_changed: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        later: Callable[..., object] = lambda function, *arguments: function(*arguments),
        originals: OriginalsRecorder | None = None,
        has_resctrl_group: Callable[[str], bool] = lambda name: True,
        as_listed: Callable[[RuntimeRequest], RuntimeRequest] = lambda request: request,
    ) -> None:
        self._originals, self._has_resctrl_group, self._as_listed = originals, has_resctrl_group, as_listed
        self._in_force, self._metrics, self._acting = in_force, metrics, acting
        self._parent_sets = parent_sets
        self._announced, self._pods_changed, self._clock, self._later = announced, pods_changed, clock, later

    def created(self, pod: nri.PodSandbox, container: nri.Container) -> nri.ContainerAdjustment | None:
        """Returns the adjustment of a container that is about to be made."""
        spec = translate.SpecResources.of(container)
        decided = self._decide(translate.create_request(pod, container, spec))
        if decided is None:
            return None
        context, policy, wanted = decided
        edits = engine.carried(wanted, policy, restores=False)
        rdt = translate.rdt_class(context, policy)
        if rdt and not self._has_resctrl_group(rdt):
            rdt = ""  # just removed: the runtime would refuse the container
        adjust = translate.adjustment(edits, container, spec, rdt, self._parent_sets)
        if self._originals is not None:
            requested = spec.request
            edited = requested if adjust is None else requested.updated(translate.requested(adjust.linux.resources))
            replaced = self._originals.replaced(requested, edited)
            if edits is not wanted:
                limited = requested.edited(wanted.limits)
                replaced |= self._originals.replaced(requested, limited, Pending.STARTED)
            self._originals.created(translate.key_of(pod, container), replaced)
        return adjust

    def starting(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        """Writes limits into the new container's cgroup, while the runtime waits before it starts the container's
        program.
        """
        cgroup = from_cgroups_path(container.linux.cgroups_path)
        if self._originals is not None and cgroup and self._acting():
            self._originals.write_limits(translate.key_of(pod, container), cgroup)

    def updated(
        self, pod: nri.PodSandbox, container: nri.Container, request: nri.LinuxResources
    ) -> nri.ContainerUpdate | None:
        """Returns the update of a container that kubelet updates by ``request``."""
        spec = translate.SpecResources.of(container, request)
        decided = self._decide(translate.update_request(pod, container, spec, request))
        if decided is None:
            return None
        edits = engine.carried(decided[2], decided[1], restores=False)
        update = translate.update(edits, container, spec, self._parent_sets)
        if self._originals is not None:
            requested = spec.request
            edited = requested if update is None else requested.updated(translate.requested(update.linux.resources))
            self._originals.updated(translate.key_of(pod, container), requested, edited)
        return update

    def found(
        self, pods: Mapping[str, nri.PodSandbox], containers: Iterable[nri.Container]
    ) -> list[nri.ContainerUpdate]:
        """Returns the updates of containers that were there before us; at most as many as one answer holds."""
        known = (
            (pods[container.pod_sandbox_id], container) for container in containers if container.pod_sandbox_id in pods
        )
        decided = [self.guarded(SYNCHRONIZE, None, self.updated, *each, nri.LinuxResources()) for each in known]
        updates = [update for update in decided if update is not None]
        taken: list[nri.ContainerUpdate] = []
        room_bytes = _ROOM_BYTES
        for update in updates:
            room_bytes -= update.ByteSize() + 8
            if room_bytes < 0:
                _log.warning("%d of %d containers are left to the reconciler", len(updates) - len(taken), len(updates))
                break
            taken.append(update)
        return taken

    def announce(self, pod: nri.PodSandbox) -> None:
        """Announces a pod: its sandbox is up, its containers are not."""
        self._announced(PodContext.read(self._as_listed(translate.pod_request(pod))))
        self.pods_may_have_changed()

    def pods_may_have_changed(self) -> None:
        """Calls ``pods_changed`` for a call that has no answer of its own."""
        self._later(self._pods_changed)

    def timed(self, call: str, otherwise: bytes, answer: Method, message: bytes) -> bytes:
        """Answers a whole call as ``guarded`` does, and times it under ``call``."""
        started = self._clock()
        answered = self.guarded(call, otherwise, answer, message)
        self._metrics.hook_seconds[call].observe(self._clock() - started)
        return answered

    def guarded(self, call: str, otherwise: Result, action: Callable[..., Result], *arguments: object) -> Result:
        """Returns the result of ``action``; logs an error of our own, counts it under ``call`` and returns
        ``otherwise``.
        """
        try:
            return action(*arguments)
        except Exception:  # noqa: BLE001 - the root of a call: our own error must not stop a pod from starting
            _log.exception("%s: answered without edits", call)
            self._metrics.hook_calls[call, CALLER, "error"] += 1
            return otherwise

    def _decide(self, request: RuntimeRequest) -> tuple[PodContext, EffectivePolicy, Edits] | None:
        """Returns the decision; None while another front end acts."""
        if not self._acting():
            self._metrics.hook_calls[request.stage.value, CALLER, "yielded"] += 1
            return None
        pod, (policy, limits) = PodContext.read(self._as_listed(request)), self._in_force()
        edits = engine.decide_call(pod, policy, limits)
        self._later(account, self._metrics, pod, edits, CALLER)
        return pod, policy, edits


class PluginService:
    """The methods of one connection; ``configured`` is called when the runtime has taken us in."""

    def __init__(self, hooks: Hooks, configured: Callable[[Peer], None]) -> None:
        self._hooks, self._configured = hooks, configured
        self._pods: dict[str, nri.PodSandbox] = {}
        self._containers: list[nri.Container] = []

    def methods(self) -> dict[tuple[str, str], Method]:
        """Returns the service's methods by our copy of NRI; those without an answer of their own only call
        ``pods_may_have_changed``.
        """
        nothing = b""
        anything = nri.ConfigureResponse(events=events("")).SerializeToString()  # an empty answer means "all events"
        own = {
            "Configure": self._method("Configure", self._configure, anything),
            SYNCHRONIZE: self._method(SYNCHRONIZE, self._synchronize, nothing),
            "Shutdown": self._shutdown,
            "RunPodSandbox": self._method(HookStage.RUN_SANDBOX.value, self._run, nothing),
            "StateChange": self._method("StateChange", self._state_change, nothing),
            "CreateContainer": self._method(HookStage.CREATE.value, self._create, nothing),
            "UpdateContainer": self._method(HookStage.UPDATE.value, self._update, nothing),
            "StartContainer": self._method("StartContainer", self._start, nothing),
        }
        service = nri.DESCRIPTOR.services_by_name["Plugin"]
        return {(SERVICE, method.name): own.get(method.name, self._note) for method in service.methods}

    def _method(self, call: str, answer: Method, otherwise: bytes) -> Method:
        return lambda message: self._hooks.timed(call, otherwise, answer, message)

    def _configure(self, message: bytes) -> bytes:
        request = nri.ConfigureRequest.FromString(message)
        version = request.NRI_version
        answer = nri.ConfigureResponse(events=events(version))
        self._configured(Peer(request.runtime_name, request.runtime_version, version, request.request_timeout / 1000))
        return answer.SerializeToString()

    def _synchronize(self, message: bytes) -> bytes:
        """Takes the runtime's list. One too long for a message comes in parts, in which a container may precede its
        pod.
        """
        request = nri.SynchronizeRequest.FromString(message)
        self._pods.update((pod.id, pod) for pod in request.pods)
        self._containers.extend(request.containers)
        if request.more:
            return nri.SynchronizeResponse(more=True).SerializeToString()
        pods, containers = self._pods, self._containers
        self._pods, self._containers = {}, []
        updates = self._hooks.found(pods, containers)
        _log.info(
            "synchronized: %d pods, %d containers, of which %d are updated", len(pods), len(containers), len(updates)
        )
        self._hooks.pods_may_have_changed()
        return nri.SynchronizeResponse(update=updates).SerializeToString()

    def _create(self, message: bytes) -> bytes:
        request = nri.CreateContainerRequest.FromString(message)
        adjust = self._hooks.created(request.pod, request.container)
        return nri.CreateContainerResponse(adjust=adjust).SerializeToString()

    def _update(self, message: bytes) -> bytes:
        request = nri.UpdateContainerRequest.FromString(message)
        update = self._hooks.updated(request.pod, request.container, request.linux_resources)
        return nri.UpdateContainerResponse(update=[update] if update else []).SerializeToString()

    def _run(self, message: bytes) -> bytes:
        self._hooks.announce(nri.RunPodSandboxRequest.FromString(message).pod)
        return b""

    def _start(self, message: bytes) -> bytes:
        request = nri.StartContainerRequest.FromString(message)
        self._hooks.starting(request.pod, request.container)
        return b""

    def _state_change(self, message: bytes) -> bytes:
        """Takes a change as runtimes before NRI 0.12 send it; newer ones call a method of its own for each."""
        change = nri.StateChangeEvent.FromString(message)
        if change.event == nri.RUN_POD_SANDBOX:
            self._hooks.announce(change.pod)
        elif change.event == nri.START_CONTAINER:
            self._hooks.starting(change.pod, change.container)
        else:
            self._hooks.pods_may_have_changed()
        return b""

    def _note(self, message: bytes) -> bytes:
        self._hooks.pods_may_have_changed()
        return b""

    def _shutdown(self, message: bytes) -> bytes:
        _log.info("the runtime is shutting down")
        return b""
