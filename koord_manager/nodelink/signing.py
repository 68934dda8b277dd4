"""Which CertificateSigningRequests of nodes are signed, and the certificate.

A node requests with kubelet's credential, or its agent's pod with its account's token, of which the API server knows
the node: since 1.30 by a claim, before by the pod that it names, which the manager's cache knows.

Pure. Invariant: what is signed makes its bearer the node as which the API server knew who requested it, a client of
NodeLink and nothing else: only subject and key are taken over, and the subject must say exactly that node.
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

from koord.kube import certificates
from koord.kube.certificates import KeyPair
from koord.kube.kind import Key, Unstructured
from koord.model.core import Pod
from koord.model.nodelink import CERTIFICATE_LIFETIME_S, NODE_GROUP, NODE_USER, SIGNER

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
        """What the API server knows of the requester's token; "" if it does not."""
        return next(iter(self.extra.get(_CLAIM + name, ())), "")


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""


class _Status(msgspec.Struct, frozen=True):
    certificate: bytes | None = None
    conditions: tuple[_Condition, ...] = ()


class _Request(msgspec.Struct, frozen=True):
    spec: _Spec
    status: _Status = _Status()

    @property
    def is_answered(self) -> bool:
        types = {condition.type for condition in self.status.conditions}
        return bool(self.status.certificate or types & {"Denied", "Failed"})


@dataclass(frozen=True, slots=True)
class Approved:
    """To be signed with this subject and key."""

    node: str
    request: x509.CertificateSigningRequest
    lifetime: timedelta
    is_recorded: bool
    """The object says so already."""


@dataclass(frozen=True, slots=True)
class Denied:
    why: str


@dataclass(frozen=True, slots=True)
class Agents:
    """Who requests for nodes without being kubelet: the agents' pods.

    ``user``: theirs, ``system:serviceaccount:<namespace>:<name>``. ``pod``: from the manager's cache.
    """

    user: str
    pod: Callable[[Key], Pod | None]

    def node(self, spec: _Spec) -> str:
        """The node of the pod whose token requested; "" of one that names neither a node nor a known pod."""
        if node := spec.claim("node-name"):
            return node
        name, uid = spec.claim("pod-name"), spec.claim("pod-uid")
        pod = self.pod(Key(self.user.split(":")[2], name)) if name and uid else None
        return pod.spec.node_name or "" if pod is not None and pod.metadata.uid == uid else ""


def judge(stored: Unstructured, agents: Agents) -> Approved | Denied | None:
    """What is to become of a request; None if nothing is left to do. It never fails."""
    try:
        read = msgspec.convert(stored.content, _Request)
    except msgspec.ValidationError as error:
        return Denied(f"the request cannot be read: {error}")
    if read.spec.signer_name != SIGNER or read.is_answered:
        return None
    node = _node(read.spec, agents)
    if not node:
        return _denied(_no_node(read.spec, agents))
    try:
        request = x509.load_pem_x509_csr(read.spec.request)
        why = _fault(read.spec, request, node)
    except Exception as error:  # noqa: BLE001 - what the library makes of a stranger's bytes: ValueError and many more
        return _denied(f"spec.request is no certificate request: {error}")
    if why:
        return Denied(why)
    return Approved(node, request, _lifetime(read.spec.expiration_seconds), _is_approved(read))


def is_answered(stored: Unstructured) -> bool:
    """Does it have a certificate, or a condition by which it gets none?"""
    try:
        return msgspec.convert(stored.content, _Request).is_answered
    except msgspec.ValidationError:
        return False


def _denied(why: str) -> Denied:
    """What it quotes is a stranger's, of any length."""
    return Denied(why if len(why) <= MAX_WHY_CHARACTERS else f"{why[: MAX_WHY_CHARACTERS - 1]}…")


def requester(stored: Unstructured) -> str:
    """Who takes turns with others: the user, and of agents' pods the node or pod of the token."""
    try:
        spec = msgspec.convert(stored.content, _Request).spec
    except msgspec.ValidationError:
        return ""
    return f"{spec.username} {spec.claim('node-name') or spec.claim('pod-uid')}"


def signed(approved: Approved, ca: KeyPair, now: datetime) -> bytes:
    """PEM. Raises CertificateError."""
    return certificates.issue_client(ca, approved.request, now, approved.lifetime)


def _node(spec: _Spec, agents: Agents) -> str:
    """Whose request it is; "" if it is no node's."""
    if spec.username == agents.user:
        return agents.node(spec)
    return spec.username.removeprefix(NODE_USER) if _is_node(spec) else ""


def _is_node(spec: _Spec) -> bool:
    return spec.username.startswith(NODE_USER) and NODE_GROUP in spec.groups


def _no_node(spec: _Spec, agents: Agents) -> str:
    if spec.username == agents.user:
        return f"the token of {spec.username} names neither a node nor a pod that is known"
    return f"{spec.username or 'nobody'} is no node"


def _fault(spec: _Spec, request: x509.CertificateSigningRequest, node: str) -> str:
    """Why ``node``'s request is not signed; "" if it is. Raises whatever reading it does."""
    user = NODE_USER + node
    if not request.is_signature_valid:
        return "spec.request is not signed by its own key"
    if (subject := _subject(request.subject)) != {NameOID.COMMON_NAME: [user]} | _ORGANIZATION:
        names = ", ".join(name for oid, names in subject.items() if oid == NameOID.COMMON_NAME for name in names)
        return f"{spec.username} may not be certified as {names or 'nobody'}: CN={user},O={NODE_GROUP} alone"
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


_ORGANIZATION: dict[x509.ObjectIdentifier, list[Any]] = {NameOID.ORGANIZATION_NAME: [NODE_GROUP]}


def _subject(name: x509.Name) -> dict[x509.ObjectIdentifier, list[Any]]:
    subject: dict[x509.ObjectIdentifier, list[Any]] = {}
    for attribute in name:
        subject.setdefault(attribute.oid, []).append(attribute.value)
    return subject


def _is_approved(read: _Request) -> bool:
    return any(condition.type == "Approved" for condition in read.status.conditions)


def _lifetime(seconds: int | None) -> timedelta:
    return LIFETIME if seconds is None else min(LIFETIME, max(SHORTEST, timedelta(seconds=seconds)))
