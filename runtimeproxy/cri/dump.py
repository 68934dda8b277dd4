"""Shows the cache to an operator: every field by name, values only where they may be logged."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.audit import shown
from runtimeproxy.cri.codec import decode
from runtimeproxy.cri.objectcache import ContainerEntry, ObjectCache, PodEntry
from runtimeproxy.hooks.edits import Edits, name
from runtimeproxy.hooks.messages import CONTAINER, POD, read


def dump_cache(cache: ObjectCache) -> Callable[[], dict[str, object]]:
    """Copies pods and containers by id now; the result makes JSON of them, which takes thousands of times longer.

    Entries never change, so any thread may read them.
    """
    pods, containers = list(cache.pods()), list(cache.containers())
    return lambda: {
        "pods": {pod_id: _pod(entry) for pod_id, entry in pods},
        "containers": {container_id: _container(entry) for container_id, entry in containers},
    }


def _pod(entry: PodEntry) -> dict[str, object]:
    pod = decode(hooks.PodSandboxHookRequest, entry.request)
    return {
        "namespace": entry.namespace,
        "name": pod.pod_meta.name,
        "uid": entry.uid,
        "fields": _shown(read(entry.request, POD.request_layout)),
        "edited": _shown(entry.edits),
        "readFromRuntime": entry.rebuilt,
    }


def _container(entry: ContainerEntry) -> dict[str, object]:
    container = decode(hooks.ContainerResourceHookRequest, entry.request)
    return {
        "pod": entry.pod_id,
        "name": container.container_meta.name,
        "fields": _shown(read(entry.request, CONTAINER.request_layout)),
    }


def _shown(state: Edits) -> Mapping[str, str]:
    return {name(slot): shown(slot, value) for slot, value in state.items()}
