"""Says how the containers of a pod ended, and what to look at next."""

from __future__ import annotations

from collections.abc import Iterator

from koordctl.cluster.objects import ContainerState, DetailedContainerStatus, DetailedPod

_MESSAGE_CHARACTERS = 200
_KILLED, _NOT_RUNNABLE, _NOT_FOUND = 137, 126, 127
_SIGNALLED = 128
"""Exit codes above are this and the number of a signal."""


def statuses(pod: DetailedPod) -> tuple[DetailedContainerStatus, ...]:
    """Returns the statuses of all containers, in the order in which they start."""
    return (*pod.status.init_container_statuses, *pod.status.container_statuses)


def failures(pod: DetailedPod) -> Iterator[str]:
    """Yields how containers ended that did not succeed."""
    for container in statuses(pod):
        end = container.state.get("terminated")
        if end is not None and end.exit_code:
            yield f"container {container.name} {ended(end)}"


def ended(end: ContainerState) -> str:
    """Returns ``ended with Error, exit code 1: its last message``."""
    message = f": {' '.join(end.message.split())[:_MESSAGE_CHARACTERS]}" if end.message else ""
    return f"ended with {end.reason or 'Error'}, exit code {end.exit_code}{message}"


def last_end(container: DetailedContainerStatus) -> ContainerState | None:
    """Returns its end, or that before it was started again; None if it never ended."""
    return container.state.get("terminated") or container.last_state.get("terminated")


def restarts(container: DetailedContainerStatus) -> str:
    """Returns how often kubelet has started it again; "" if never."""
    count = container.restart_count
    return "" if not count else ", started again once" if count == 1 else f", started again {count} times"


def remedies(pod: DetailedPod, container: DetailedContainerStatus) -> tuple[str, ...]:
    """Returns what to look at, and what its exit code calls for."""
    end = last_end(container)
    if end is None:
        return (f"see what kubelet says: kubectl describe pod -n {pod.metadata.namespace} {pod.metadata.name}",)
    is_previous = "terminated" not in container.state
    logs = f"kubectl logs -n {pod.metadata.namespace} {pod.metadata.name} -c {container.name}"
    return (f"read what it said last: {logs}{' --previous' if is_previous else ''}", *_by_end(pod, end))


def _by_end(pod: DetailedPod, end: ContainerState) -> Iterator[str]:
    if end.reason == "OOMKilled":
        yield "raise its memory limit, or have it use less: it was killed at that limit"
    elif end.exit_code == _KILLED:
        yield "see who killed it: kubelet after a liveness probe, or a program with kill -9"
    elif end.exit_code in (_NOT_RUNNABLE, _NOT_FOUND):
        yield "see its command: the program is not in the image, or cannot be run"
    elif end.exit_code == 0 and (pod.spec.restart_policy or "Always") == "Always":
        yield "let it run on, or make it a Job: with restartPolicy Always kubelet starts again what has done its work"
    elif end.exit_code > _SIGNALLED:
        yield f"see why it got signal {end.exit_code - _SIGNALLED}"
