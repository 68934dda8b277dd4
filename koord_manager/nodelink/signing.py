"""Which CertificateSigningRequests of nodes and schedulers are signed, and the certificate.

A node requests with kubelet's credential, or its agent's pod with its account's token, of which the API server knows
the node: since 1.30 by a claim, before by the pod that it names, which the manager's cache knows. A scheduler requests
with its account's token.

Pure. Invariant: what is signed makes its bearer the node or the account as which the API server knew who requested it,
a client of NodeLink's port and nothing else: only subject and key are taken over, and the subject must say exactly
that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from koord.kube.kind import Key, Unstructured
from koord.model.core import Pod
from koord.model.nodelink import CERTIFICATE_LIFETIME_S, NODE_GROUP, NODE_USER, SCHEDULER_GROUP, SIGNER
from koord.tls import certificates
from koord.tls.certificates import KeyPair

MAX_REQUEST_BYTES = 8192
"""Of spec.request: five times what an RSA key of 4096 bits needs. An API server takes 1.5 MB."""
TOO_LONG = "TooLong"
LIFETIME = timedelta(seconds=CERTIFICATE_LIFETIME_S)
SHORTEST = timedelta(minutes=10)
USAGES = frozenset({"client auth", "digital signature", "key encipherment"})
CLIENT_AUTH = "client auth"
MAX_WHY_CHARACTERS = 500
_LEAST_RSA_BITS = 2048
_CLAIM = "authentication.kubernetes.io/"


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    request: bytes
    signer_name: str = ""
    username: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}
    usages: tuple[str, ...] = ()
    expiration_seconds: int | None = None

    def claim(self, name: str) -> str:
        """Returns what the API server knows of the requester's token; "" if it knows nothing."""
        return next(iter(self.extra.get(_CLAIM + name, ())), "")


_NO_SPEC = _Spec(b"")


class _Status(msgspec.Struct, frozen=True):
    certificate: bytes | None = None
    conditions: tuple[Mapping[str, Any], ...] = ()

    @property
    def is_answer(self) -> bool:
        return bool(self.certificate) or any(each.get("type") in ("Denied", "Failed") for each in self.conditions)


class _Head(msgspec.Struct, frozen=True):
    spec: Mapping[str, Any]
    status: _Status = _Status()


@dataclass(frozen=True, slots=True)
class Approved:
    """To be signed with this subject and key. ``user``: the subject's name."""

    user: str
    request: x509.CertificateSigningRequest
    lifetime: timedelta


@dataclass(frozen=True, slots=True)
class Denied:
    """``reason``: of the condition, ``why`` its message."""

    why: str
    reason: str = "NotThisNode"


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """A request that waits for its answer, as much of it as that needs, which is little whatever the object's size.

    ``conditions``: as the object has them. ``fault``: why it is not signed, for every requester; ``spec`` has no
    request then.
    """

    name: str
    uid: str
    version: str
    created: str
    spec: _Spec
    conditions: tuple[Mapping[str, Any], ...] = ()
    fault: Denied | None = None

    @property
    def is_approved(self) -> bool:
        return any(condition.get("type") == "Approved" for condition in self.conditions)


@dataclass(frozen=True, slots=True)
class Agents:
    """Who requests for nodes without being kubelet: the agents' pods.

    ``user``: theirs, ``system:serviceaccount:<namespace>:<name>``. ``pod``: from the manager's cache.
    """

    user: str
    pod: Callable[[Key], Pod | None]
    scheduler: str = ""
    """The account of schedulers; "": none is certified."""

    def node(self, spec: _Spec) -> str:
        """The node of the pod whose token requested; "" of one that names neither a node nor a known pod."""
        if node := spec.claim("node-name"):
            return node
        name, uid = spec.claim("pod-name"), spec.claim("pod-uid")
        pod = self.pod(Key(self.user.split(":")[2], name)) if name and uid else None
        return pod.spec.node_name or "" if pod is not None and pod.metadata.uid == uid else ""


def read(stored: Unstructured) -> CertificateRequest | None:
    """Returns the request that is to be answered; None if another signer's, or if it has an answer. It never fails."""
    kept = stored.metadata
    name = kept.name, kept.uid, kept.resource_version, kept.creation_timestamp or ""
    try:
        head = msgspec.convert(stored.content, _Head)
        if head.spec.get("signerName") != SIGNER or head.status.is_answer:
            return None
        spec = msgspec.convert(head.spec, _Spec)
    except msgspec.ValidationError as error:
        return CertificateRequest(
            *name, _NO_SPEC, fault=Denied(_brief(f"the request cannot be read: {error}"), "Unreadable")
        )
    if (size_bytes := len(spec.request)) > MAX_REQUEST_BYTES:
        why = f"spec.request has {size_bytes} bytes, which is more than {MAX_REQUEST_BYTES}"
        return CertificateRequest(
            *name, msgspec.structs.replace(spec, request=b""), head.status.conditions, Denied(why, TOO_LONG)
        )
    return CertificateRequest(*name, spec, head.status.conditions)


def judge(request: CertificateRequest, agents: Agents) -> Approved | Denied:
    """Returns the answer to the request. It never fails."""
    if request.fault is not None:
        return request.fault
    spec = request.spec
    if agents.scheduler and spec.username == agents.scheduler:
        user, group = spec.username, SCHEDULER_GROUP
    elif node := _node(spec, agents):
        user, group = NODE_USER + node, NODE_GROUP
    else:
        return Denied(_brief(_no_node(spec, agents)))
    try:
        wanted = x509.load_pem_x509_csr(spec.request)
        why = _fault(spec, wanted, user, group)
    except Exception as error:  # noqa: BLE001 - what the library makes of a stranger's bytes: ValueError and many more
        return Denied(_brief(f"spec.request is no certificate request: {error}"))
    return Denied(_brief(why)) if why else Approved(user, wanted, _lifetime(spec.expiration_seconds))


def _brief(why: str) -> str:
    """Shortens a message that quotes a stranger's text of any length."""
    return why if len(why) <= MAX_WHY_CHARACTERS else f"{why[: MAX_WHY_CHARACTERS - 1]}…"


def requester(request: CertificateRequest, agents: Agents) -> str:
    """Returns the party that takes turns with others: a node, or for agents' pods the node or pod of the token; "" for
    all other clients together.
    """
    spec = request.spec
    if spec.username == agents.user:
        return f"{spec.username} {spec.claim('node-name') or spec.claim('pod-uid')}"
    return spec.username if _is_node(spec) or spec.username == agents.scheduler else ""


def signed(approved: Approved, ca: KeyPair, now: datetime) -> bytes:
    """PEM. Raises CertificateError."""
    return certificates.issue_client(ca, approved.request, now, approved.lifetime)


def _node(spec: _Spec, agents: Agents) -> str:
    """Returns the node that makes the request; "" if it is no node's."""
    if spec.username == agents.user:
        return agents.node(spec)
    return spec.username.removeprefix(NODE_USER) if _is_node(spec) else ""


def _is_node(spec: _Spec) -> bool:
    return spec.username.startswith(NODE_USER) and NODE_GROUP in spec.groups


def _no_node(spec: _Spec, agents: Agents) -> str:
    if spec.username == agents.user:
        return f"the token of {spec.username} names neither a node nor a pod that is known"
    return f"{spec.username or 'nobody'} is no node"


def _fault(spec: _Spec, request: x509.CertificateSigningRequest, user: str, group: str) -> str:
    """Why the request of ``user`` is not signed; "" if it is. Raises whatever reading it does."""
    if not request.is_signature_valid:
        return "spec.request is not signed by its own key"
    if (subject := _subject(request.subject)) != {NameOID.COMMON_NAME: [user], NameOID.ORGANIZATION_NAME: [group]}:
        names = ", ".join(name for oid, names in subject.items() if oid == NameOID.COMMON_NAME for name in names)
        return f"{spec.username} may not be certified as {names or 'nobody'}: CN={user},O={group} alone"
    if request.extensions:
        return "spec.request has extensions, such as other names"
    if CLIENT_AUTH not in spec.usages or not USAGES.issuperset(spec.usages):
        return f"spec.usages: {', '.join(spec.usages)} is more or less than a client needs: {', '.join(sorted(USAGES))}"
    return _fault_of_key(request)


def _fault_of_key(request: x509.CertificateSigningRequest) -> str:
    key = request.public_key()
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1):
        return ""
    if isinstance(key, rsa.RSAPublicKey) and key.key_size >= _LEAST_RSA_BITS:
        return ""
    return f"spec.request's key is neither ECDSA P-256 or P-384 nor RSA of {_LEAST_RSA_BITS} bits or more"


def _subject(name: x509.Name) -> dict[x509.ObjectIdentifier, list[Any]]:
    subject: dict[x509.ObjectIdentifier, list[Any]] = {}
    for attribute in name:
        subject.setdefault(attribute.oid, []).append(attribute.value)
    return subject


def _lifetime(seconds: int | None) -> timedelta:
    longest_s = int(LIFETIME.total_seconds())
    return LIFETIME if seconds is None else max(SHORTEST, timedelta(seconds=min(max(seconds, 0), longest_s)))
