"""The moments at which a hook server can be asked, by the names that hook files use."""

from __future__ import annotations

from enum import StrEnum

SERVICE = "/runtime.v1alpha1.RuntimeHookService/"
ALL = "*"


class CallStage(StrEnum):
    """A stage of a call. The last three are ours; a server that lacks them answers UNIMPLEMENTED, "no opinion"."""

    PRE_RUN_POD = "PreRunPodSandbox"
    POST_STOP_POD = "PostStopPodSandbox"
    PRE_CREATE = "PreCreateContainer"
    PRE_START = "PreStartContainer"
    POST_START = "PostStartContainer"
    POST_STOP = "PostStopContainer"
    PRE_UPDATE = "PreUpdateContainerResources"
    PRE_REMOVE_POD = "PreRemoveRunPodSandbox"
    PRE_UPDATE_POD = "PreUpdatePodSandboxResources"
    POST_REMOVE = "PostRemoveContainer"

    path: str
    """The gRPC path of the stage's call."""

    def __init__(self, name: str) -> None:
        self.path = f"{SERVICE}{name}Hook"


STAGES = frozenset(stage.value for stage in CallStage)
