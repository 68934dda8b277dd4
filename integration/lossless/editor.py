"""A hook server that edits every field a hook may edit, and requests that give it something to edit.

It declares presence, so that it can clear and delete. Its values differ from stage to stage, since the proxy rightly
leaves out of an update what the container has already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from integration.harness.hookserver import PRESENCE, Question, Reply
from integration.lossless.conversation import CREATE, EDITED, RUN_POD, UPDATE
from koord.pb.hooks import api_pb2 as hooks

METHOD_OF = dict(zip(
    ("PreRunPodSandbox", "PreCreateContainer", "PreUpdateContainerResources", "PreUpdatePodSandboxResources"),
    EDITED, strict=True,
))  # fmt: skip
SET, GONE, PAGE = "koord.test/set", "koord.test/gone", "2MB"
MOVED = "/koord"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The edits of one stage, by the field names of the proxy's table. A key of a map becomes None: deleted."""

    resources: Mapping[str, int | str]
    entries: Mapping[str, Mapping[str, int | str | bytes | None]]

    @classmethod
    def at(cls, method: str) -> Wanted:
        stage = EDITED.index(method)
        resources: dict[str, int | str] = {
            "cpu_period": 50_000 + stage, "cpu_quota": -1 if method == CREATE else 7_000 + stage,
            "cpu_shares": 512 + stage, "memory_limit_in_bytes": (64 << 20) + stage, "oom_score_adj": -500 + stage,
            "memory_swap_limit_in_bytes": (128 << 20) + stage, "cpuset_cpus": f"0-{stage}", "cpuset_mems": "",
        }  # fmt: skip
        return cls(resources, {
            "unified": {"memory.high": f"{stage}"},
            "hugepage_limits": {PAGE: 1000 + stage},
            "labels": {SET: f"label {stage}"},
            "annotations": {SET: f"annotation {stage}", GONE: None},
            "envs": {SET: f"variable {stage}".encode(), GONE: None},
        })  # fmt: skip


def prepare(method: str, request: Any, number: int) -> None:
    """Give the request a cgroup parent that may be moved, and entries to change and to delete, in all but the first of
    three rounds: then the edit has to add them."""
    parent = cgroup_parent(number)
    if method == RUN_POD:
        request.config.linux.cgroup_parent = parent
    elif method == CREATE and request.HasField("sandbox_config"):
        request.sandbox_config.linux.cgroup_parent = parent
    if method not in EDITED or number % 3 == 0:
        return
    if method in (RUN_POD, CREATE):
        request.config.annotations.update({SET: "before", GONE: "before"})
    if method == CREATE:
        for key in (SET, GONE, SET):
            request.config.envs.add(key=key, value=b"before")
    resources = _resources_of(method, request)
    resources.hugepage_limits.add(page_size=PAGE, limit=1)
    resources.unified["memory.high"] = "before"


def _resources_of(method: str, request: Any) -> Any:
    if method in (RUN_POD, CREATE):
        return request.config.linux.resources
    return request.linux if method == UPDATE else request.resources


def cgroup_parent(number: int) -> str:
    """The sandbox's cgroup in round ``number``, before the edit."""
    return f"/kubepods/pod{number}"


def edit(question: Question) -> Reply:
    """The hook server's answer; it has no opinion at the other stages."""
    if question.stage not in METHOD_OF:
        return Reply(b"", PRESENCE)
    wanted = Wanted.at(METHOD_OF[question.stage])
    pod_stage = "Sandbox" in question.stage
    answer = _pod(question.message, wanted) if pod_stage else _container(question.message, wanted)
    return Reply(answer.SerializeToString(), PRESENCE)


def _pod(message: bytes, wanted: Wanted) -> hooks.PodSandboxHookResponse:
    asked = hooks.PodSandboxHookRequest.FromString(message)
    return hooks.PodSandboxHookResponse(
        labels=_set(wanted, "labels"), annotations=_set(wanted, "annotations"), removed_annotations=[GONE],
        cgroup_parent=_moved(asked.cgroup_parent), resources=_resources(wanted),
    )  # fmt: skip


def _container(message: bytes, wanted: Wanted) -> hooks.ContainerResourceHookResponse:
    asked = hooks.ContainerResourceHookRequest.FromString(message)
    return hooks.ContainerResourceHookResponse(
        container_annotations=_set(wanted, "annotations"), removed_container_annotations=[GONE],
        container_envs=_set(wanted, "envs"), removed_container_envs=[GONE],
        pod_cgroup_parent=_moved(asked.pod_cgroup_parent), container_resources=_resources(wanted),
    )  # fmt: skip


def _set(wanted: Wanted, field: str) -> dict[str, Any]:
    return {key: value for key, value in wanted.entries[field].items() if value is not None}


def _resources(wanted: Wanted) -> hooks.LinuxContainerResources:
    limits = [{"page_size": size, "limit": limit} for size, limit in wanted.entries["hugepage_limits"].items()]
    fields: dict[str, Any] = dict(wanted.resources)
    return hooks.LinuxContainerResources(**fields, unified=_set(wanted, "unified"), hugepage_limits=limits)


def _moved(parent: str) -> str:
    return parent if parent.endswith(MOVED) else parent + MOVED
