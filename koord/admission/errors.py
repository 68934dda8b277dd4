"""Why a request for admission gets no answer but a refusal. Each error has the HTTP status of that answer."""

from __future__ import annotations

from typing import ClassVar


class AdmissionError(ValueError):
    """The request cannot be served; ``code`` is the HTTP status of the refusal."""

    code: ClassVar[int] = 400


class UnknownNamespace(Exception):
    """A pod is created in the namespace ``name``, and its labels are not known yet, except to the API server.

    Informers lag behind it: a pod that is created at once with its namespace is not to lose its profiles.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class UnreadableError(AdmissionError):
    """What was sent is no such request, or no such object; ``why`` says at which path."""

    def __init__(self, kind: str, why: str) -> None:
        self.kind, self.why = kind, why
        super().__init__(f"{kind} cannot be read: {why}")


class CrowdedError(AdmissionError):
    """The pod has more containers than are judged."""

    def __init__(self, count: int, most: int) -> None:
        found = f"{count} are more than the {most} of a pod that is judged"
        super().__init__(f"spec.containers and spec.initContainers: {found}")


class TranslationError(AdmissionError):
    """The amount at ``path`` has no meaning on the resources of the pod's priority class."""

    def __init__(self, path: str, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"{path}: {why}")


class ProfileError(AdmissionError):
    """A profile that matches the pod cannot be applied to it: forbidden, as Kubernetes' own Priority plugin answers."""

    code = 403

    def __init__(self, profile: str, why: str) -> None:
        self.profile, self.why = profile, why
        super().__init__(f"ClusterColocationProfile {profile} cannot be applied: {why}")
