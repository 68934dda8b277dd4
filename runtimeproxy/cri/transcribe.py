"""Cuts the fields that hook servers get out of CRI's requests, without decoding them.

Metadata, resources and entries of maps look the same in CRI and in the hook protocol, down to their field numbers; only
the fields that hold them are numbered differently. So they are moved as they are. An environment variable looks like an
entry of the hook protocol's map of them. Invariant: a variable that is not UTF-8 never gets into a hook request, since
servers with upstream's protocol (a string) could not read it; all other fields read as in CRI's request. Everything
here raises MalformedMessage.
"""

from __future__ import annotations

from runtimeproxy.hooks import patch
from runtimeproxy.hooks.edits import Edits
from runtimeproxy.hooks.messages import POD
from runtimeproxy.wire.protowire import fields, last_bytes, payloads

_META, _HANDLER, _LABELS, _ANNOTATIONS, _PARENT, _OVERHEAD, _RESOURCES = range(1, 8)  # of PodSandboxHookRequest
_NAME, _UID, _NAMESPACE = 1, 2, 3  # of PodSandboxMetadata; a container's name is field 1 as well
_POD_META, _CONTAINER_META = 1, 2  # of ContainerResourceHookRequest
_POD_RESOURCES, _POD_ANNOTATIONS, _POD_LABELS, _POD_PARENT = range(5, 9)
_CONTAINER_ID = 3
_NOTHING_HIDDEN: frozenset[str] = frozenset()


class PodFields:
    """The fields of a pod that hook servers get. ``given_parent``: the cgroup parent that kubelet gave it; ``parts``:
    payloads by field number of its PodSandboxHookRequest.
    """

    __slots__ = ("_parts", "_request", "cgroup_parent", "given_parent")

    def __init__(self, parts: dict[int, list[bytes]], given_parent: str = "") -> None:
        self._parts = parts
        self._request: bytes | None = None
        self.cgroup_parent = text(parts[_PARENT])
        self.given_parent = given_parent or self.cgroup_parent

    def mentions(self, text: bytes) -> bool:
        """Returns whether a label or an annotation contains ``text``."""
        return text in b"\0".join(self._parts[_LABELS] + self._parts[_ANNOTATIONS])

    @classmethod
    def of_config(cls, config: bytes, handler: list[bytes]) -> PodFields:
        """Makes it of a PodSandboxConfig."""
        meta, labels, annotations, linux = payloads(config, 1, 6, 7, 8)
        parent, overhead, resources = payloads(b"".join(linux), 1, 4, 5)
        return cls(
            {
                _META: meta,
                _HANDLER: handler,
                _LABELS: labels,
                _ANNOTATIONS: annotations,
                _PARENT: parent,
                _OVERHEAD: overhead,
                _RESOURCES: resources,
            }
        )

    @classmethod
    def of_request(cls, request: bytes, given_parent: str = "") -> PodFields:
        """Makes it of a PodSandboxHookRequest."""
        numbers = range(_META, _RESOURCES + 1)
        return cls(dict(zip(numbers, payloads(request, *numbers), strict=True)), given_parent)

    @property
    def request(self) -> bytes:
        """Its PodSandboxHookRequest."""
        if self._request is None:
            self._request = fields(self._parts)
        return self._request

    @property
    def handler(self) -> str:
        """Its runtime handler; "" is the runtime's default."""
        return text(self._parts[_HANDLER])

    @property
    def in_container(self) -> bytes:
        """Returns the pod's fields of its containers' ContainerResourceHookRequests."""
        parts = self._parts
        return fields(
            {
                _POD_META: parts[_META],
                _POD_RESOURCES: parts[_RESOURCES],
                _POD_ANNOTATIONS: parts[_ANNOTATIONS],
                _POD_LABELS: parts[_LABELS],
                _POD_PARENT: parts[_PARENT],
            }
        )

    def edited(self, edits: Edits) -> PodFields:
        """Returns the same pod after ``edits`` of ours."""
        if not edits:
            return self
        return PodFields.of_request(patch.apply(self.request, POD.request, edits), self.given_parent)

    def name(self) -> str:
        """Returns its name for logs."""
        return pod_name(self.request)


def pod_to_run(message: bytes) -> PodFields:
    """Returns the pod of a RunPodSandboxRequest."""
    return _pod_at(message, 1, 2)


def pod_to_restore(message: bytes) -> PodFields:
    """Returns the pod of a RestorePodRequest."""
    return _pod_at(message, 2, 3)


def _pod_at(message: bytes, config_field: int, handler_field: int) -> PodFields:
    config, handler = payloads(message, config_field, handler_field)
    return PodFields.of_config(b"".join(config), handler)


def with_handler_of(request: bytes, older: bytes) -> bytes:
    """Returns a PodSandboxHookRequest with the runtime handler that an older one of the same pod names."""
    own, known = payloads(request, _HANDLER)[0], payloads(older, _HANDLER)[0]
    return request if own else request + fields({_HANDLER: known})


def container_of(config: bytes) -> tuple[bytes, frozenset[str]]:
    """Returns a ContainerConfig as ContainerResourceHookRequest without its pod; and the variables left out of it."""
    meta, variables, annotations, linux = payloads(config, 1, 6, 10, 15)
    hidden = _NOTHING_HIDDEN
    if not b"".join(variables).isascii():  # else they are text
        names = {last_bytes(each, patch.KEY) for each in variables if not _is_text(each)}
        variables = [each for each in variables if last_bytes(each, patch.KEY) not in names]
        hidden = frozenset([name.decode("utf-8", "surrogateescape") for name in names])
    request = fields({_CONTAINER_META: meta, 3: annotations, 4: payloads(b"".join(linux), 1)[0], 9: variables})
    return request, hidden


def _is_text(variable: bytes) -> bool:
    """Returns whether key and value are UTF-8."""
    try:
        last_bytes(variable, patch.KEY).decode()
        last_bytes(variable, patch.VALUE).decode()
    except UnicodeDecodeError:
        return False
    return True


def with_id(request: bytes, container_id: str) -> bytes:
    """Returns a ContainerResourceHookRequest with the id that the container has by now."""
    return request + fields({_CONTAINER_META: [fields({_CONTAINER_ID: [container_id.encode()]})]})


def identity(request: bytes) -> tuple[str, str]:
    """Returns uid and namespace of the pod of a PodSandboxHookRequest."""
    uid, namespace = payloads(b"".join(payloads(request, _META)[0]), _UID, _NAMESPACE)
    return text(uid), text(namespace)


def pod_name(request: bytes) -> str:
    """Returns the name for logs of the pod of a PodSandboxHookRequest."""
    return f"pod {_namespace_and_name(b''.join(payloads(request, _META)[0]))}"


def container_name(request: bytes) -> str:
    """Returns the name for logs of the container of a ContainerResourceHookRequest."""
    pod, container = payloads(request, _POD_META, _CONTAINER_META)
    name = last_bytes(b"".join(container), _NAME).decode("utf-8", "replace")
    return f"container {_namespace_and_name(b''.join(pod))}/{name}"


def _namespace_and_name(meta: bytes) -> str:
    return (last_bytes(meta, _NAMESPACE) + b"/" + last_bytes(meta, _NAME)).decode("utf-8", "replace")


def text(contents: list[bytes]) -> str:
    """Returns the value of a string field with these occurrences: the last one."""
    return contents[-1].decode("utf-8", "replace") if contents else ""
