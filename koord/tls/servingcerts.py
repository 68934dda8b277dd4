"""Keeps the webhook server's certificate, its Secret and the ``caBundle`` of the webhook configurations in step.

Every replica does this, and none is the leader: ``plan`` looks at what is and says what to write; its caller
(`koord.tls.servingloop`) writes that and looks again, until nothing is left to write.

Invariant: at each moment the ``caBundle`` of each configuration verifies the certificate that each replica serves, if
it ever did. It holds because
* the configurations are read before the Secret, both from the API server and not from a cache, and every write carries
  the resource version that was read: who writes a ``caBundle`` has seen a Secret no older than that ``caBundle``;
* a new authority is announced in the Secret first. It signs only after every configuration has carried it for
  ``SETTLE``, the time in which API servers come to know of it;
* the old authority stays in the bundle until all that it ever signed has expired;
* a Secret that is lost or unusable is made anew with the authorities that the configurations carry as the old ones,
  and a server takes up another certificate only when every configuration verifies it. (To withdraw an authority at
  once, empty the ``caBundle`` and delete the Secret.)
A Secret that somebody else fills is read, never written. The bundle then is its ``ca.crt``, beside which the old one
stays for ``PROVIDED_OVERLAP`` after a new certificate was issued; without ``ca.crt`` no ``caBundle`` is touched.

Of a configuration nothing but ``caBundle`` is written, and only of entries that call this service. Upstream also
removes entries without a handler, and restores them from an annotation ``template``; here the chart renders the
entries that are switched on, a server answers for those that are not (`koord.webhook.server`), and the annotation
is left for upstream to find.

``plan`` never fails: whatever the Secret and the configurations hold, it says in a sentence what is wrong with them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import msgspec

from koord.model.core import ObjectMeta
from koord.tls import certificates
from koord.tls.certificates import (
    CA_CERTIFICATE,
    CA_KEY,
    PROVIDED_CA,
    SERVING_CERTIFICATES,
    SERVING_KEYS,
    SERVING_LIFETIME,
    CertificateCondition,
    CertificateError,
    CertificateVerdict,
    KeyPair,
    ServingCertificate,
)

NEXT_CA_KEY, NEXT_CA_CERTIFICATE = "next-ca-key.pem", "next-ca-cert.pem"
NEXT_CA_TRUSTED_SINCE = "next-ca-trusted-since"
"""Since when every configuration has carried the next authority, in RFC 3339."""

PREVIOUS_CAS = "previous-ca-certs.pem"
CA_SIGNING_SINCE = "ca-signing-since"
"""Since when the authorities in ``PREVIOUS_CAS`` no longer sign, in RFC 3339."""

SETTLE = timedelta(hours=1)
PROVIDED_OVERLAP = timedelta(days=1)

_TLS_SECRET = "kubernetes.io/tls"  # a type, not a password
_CERT_MANAGER = "cert-manager.io/certificate-name"


# what the API server holds


class ServiceReference(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""


class ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    """How an API server calls a webhook. ``ca_bundle``: PEM."""

    service: ServiceReference | None = None
    url: str | None = None
    ca_bundle: bytes | None = None


class Webhook(msgspec.Struct, frozen=True, rename="camel"):
    """One entry of a configuration; its name is its own there."""

    name: str = ""
    client_config: ClientConfig = ClientConfig()


class WebhookConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration."""

    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[Webhook, ...] | None = ()


class Secret(msgspec.Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta = ObjectMeta()
    type: str = "Opaque"
    data: Mapping[str, bytes] | None = None

    @property
    def is_provided(self) -> bool:
        """Whether another program fills it."""
        return self.type == _TLS_SECRET or _CERT_MANAGER in self.metadata.annotations


@dataclass(frozen=True, slots=True)
class Observation:
    """``configurations``: those that exist, read before ``secret``."""

    configurations: tuple[WebhookConfiguration, ...]
    secret: Secret | None


@dataclass(frozen=True, slots=True)
class Service:
    """The webhook service. ``other_names``: DNS names and addresses by which it is called from without a cluster."""

    name: str
    namespace: str
    other_names: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return certificates.serving_names(self.name, self.namespace, self.other_names)

    def is_target(self, config: ClientConfig) -> bool:
        """Returns whether a webhook with this ``config`` calls the service."""
        if config.service is not None:
            return (config.service.name, config.service.namespace) == (self.name, self.namespace)
        with suppress(ValueError):
            return urlsplit(config.url or "").hostname in self.names
        return False


# what there is to do


@dataclass(frozen=True, slots=True)
class SecretCreation:
    data: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class SecretUpdate:
    """``data``: what changes; None removes a key."""

    resource_version: str
    data: Mapping[str, bytes | None]

    @property
    def merge_patch(self) -> dict[str, object]:
        """The body of ``application/merge-patch+json``."""
        data = {key: None if value is None else _base64(value) for key, value in self.data.items()}
        return {"metadata": {"resourceVersion": self.resource_version}, "data": data}


@dataclass(frozen=True, slots=True)
class CABundleUpdate:
    """``ca_bundles``: PEM, by the name of the entry."""

    kind: str
    name: str
    resource_version: str
    ca_bundles: Mapping[str, bytes]

    @property
    def strategic_merge_patch(self) -> dict[str, object]:
        """The body of ``application/strategic-merge-patch+json``, to which entries of one name are one entry."""
        webhooks = [
            {"name": name, "clientConfig": {"caBundle": _base64(ca_bundle)}}
            for name, ca_bundle in self.ca_bundles.items()
        ]
        return {"metadata": {"resourceVersion": self.resource_version}, "webhooks": webhooks}


@dataclass(frozen=True, slots=True)
class ContextReload:
    certificate: ServingCertificate


ClusterWrite = SecretCreation | SecretUpdate | CABundleUpdate
Action = ClusterWrite | ContextReload


@dataclass(frozen=True, slots=True)
class CertificatePlan:
    """``actions`` are independent of each other; none: all is in step. ``why``: a sentence on the certificates."""

    actions: tuple[Action, ...]
    why: str


def plan(
    observation: Observation, serving: ServingCertificate | None, service: Service, now: datetime
) -> CertificatePlan:
    """Plans what a replica that serves ``serving`` (None: nothing yet) writes next. It never fails.

    The Secret comes first and alone: what follows from it follows when it has been read back.
    """
    secret = observation.secret
    if secret is not None and secret.is_provided:
        return _plan_provided(observation.configurations, dict(secret.data or {}), serving, service, now)
    data = {} if secret is None else dict(secret.data or {})
    verdict = certificates.judge(data, service.names, now)
    bundles = [config.ca_bundle or b"" for _, config in _entries(observation.configurations, service)]
    change = _secret_change(verdict, data, bundles, service, now)
    if change:
        return CertificatePlan((_secret_write(secret, change),), verdict.why)
    authorities = [data.get(key, b"") for key in (CA_CERTIFICATE, NEXT_CA_CERTIFICATE, PREVIOUS_CAS)]
    ca_bundle = certificates.bundle(authorities, now)
    stored = ServingCertificate(_pair(data, SERVING_KEYS[0], SERVING_CERTIFICATES[0]), ca_bundle)
    updates = _bundle_updates(observation.configurations, service, lambda _: ca_bundle)
    return CertificatePlan((*_reload(stored, serving, bundles, now), *updates), verdict.why)


def _plan_provided(
    configurations: Sequence[WebhookConfiguration],
    data: Mapping[str, bytes],
    serving: ServingCertificate | None,
    service: Service,
    now: datetime,
) -> CertificatePlan:
    verdict = certificates.judge_provided(data, service.names[0], now)
    if verdict.condition is CertificateCondition.BROKEN:
        return CertificatePlan((), verdict.why)
    stored = ServingCertificate(_pair(data, SERVING_KEYS[0], SERVING_CERTIFICATES[0]), data.get(PROVIDED_CA, b""))
    if not stored.ca_bundle.strip():
        reload = () if stored == serving else (ContextReload(stored),)
        return CertificatePlan(reload, f"{verdict.why}; without {PROVIDED_CA}, caBundle is left to whoever provides it")
    leaf = certificates.read_certificate(stored.pair.certificate, SERVING_CERTIFICATES[0])
    overlaps = now < leaf.not_valid_before_utc + PROVIDED_OVERLAP

    def ca_bundle(present: bytes) -> bytes:
        return certificates.bundle([stored.ca_bundle, present] if overlaps else [stored.ca_bundle], now)

    bundles = [config.ca_bundle or b"" for _, config in _entries(configurations, service)]
    updates = _bundle_updates(configurations, service, ca_bundle)
    return CertificatePlan((*_reload(stored, serving, bundles, now), *updates), verdict.why)


# the Secret


def _secret_change(
    verdict: CertificateVerdict, data: Mapping[str, bytes], bundles: Sequence[bytes], service: Service, now: datetime
) -> dict[str, bytes | None]:
    """Returns the changes of the Secret, one thing at a time. ``bundles``: those of the configurations' entries."""
    if verdict.condition is CertificateCondition.BROKEN:
        known = (data.get(key, b"") for key in (CA_CERTIFICATE, NEXT_CA_CERTIFICATE, PREVIOUS_CAS))
        return _signing_by(certificates.issue_ca(now), (*known, *bundles), service, now)
    if verdict.condition is CertificateCondition.RENEW_SERVING:
        return _serving(certificates.issue_serving(_pair(data, CA_KEY, CA_CERTIFICATE), service.names, now))
    return _retirement(data, now) or _rotation(verdict, data, bundles, service, now)


def _rotation(
    verdict: CertificateVerdict, data: Mapping[str, bytes], bundles: Sequence[bytes], service: Service, now: datetime
) -> dict[str, bytes | None]:
    """Announces the next authority, waits until all know it, and lets it sign."""
    try:
        next_ca = certificates.read_ca(data, now, NEXT_CA_KEY, NEXT_CA_CERTIFICATE)
    except CertificateError:
        return _announcement(now) if verdict.condition is CertificateCondition.RENEW_CA else {}
    ca = certificates.read_certificate(data[CA_CERTIFICATE], CA_CERTIFICATE)
    if not all({ca, next_ca} <= set(certificates.certificates(ca_bundle)) for ca_bundle in bundles):
        return {NEXT_CA_TRUSTED_SINCE: None} if NEXT_CA_TRUSTED_SINCE in data else {}
    since = _time(data, NEXT_CA_TRUSTED_SINCE, now)
    if since is None:
        return {NEXT_CA_TRUSTED_SINCE: _rfc3339(now)}
    if now < since + SETTLE:
        return {}
    old = (data[CA_CERTIFICATE], data.get(PREVIOUS_CAS, b""))
    return _signing_by(_pair(data, NEXT_CA_KEY, NEXT_CA_CERTIFICATE), old, service, now)


def _announcement(now: datetime) -> dict[str, bytes | None]:
    ca = certificates.issue_ca(now)
    return {NEXT_CA_KEY: ca.key, NEXT_CA_CERTIFICATE: ca.certificate, NEXT_CA_TRUSTED_SINCE: None}


def _retirement(data: Mapping[str, bytes], now: datetime) -> dict[str, bytes | None]:
    """Old authorities go when all that they signed has expired."""
    if PREVIOUS_CAS not in data:
        return {}
    since = _time(data, CA_SIGNING_SINCE, now)
    if since is None:
        return {CA_SIGNING_SINCE: _rfc3339(now)}
    return {PREVIOUS_CAS: None, CA_SIGNING_SINCE: None} if now >= since + SERVING_LIFETIME else {}


def _signing_by(ca: KeyPair, previous: Iterable[bytes], service: Service, now: datetime) -> dict[str, bytes | None]:
    """Returns the changes by which ``ca`` signs from now on, while clients still know the ``previous`` ones."""
    pem = certificates.bundle(previous, now)
    return {
        CA_KEY: ca.key,
        CA_CERTIFICATE: ca.certificate,
        PREVIOUS_CAS: pem or None,
        CA_SIGNING_SINCE: _rfc3339(now) if pem else None,
        NEXT_CA_KEY: None,
        NEXT_CA_CERTIFICATE: None,
        NEXT_CA_TRUSTED_SINCE: None,
        **_serving(certificates.issue_serving(ca, service.names, now)),
    }


def _serving(pair: KeyPair) -> dict[str, bytes | None]:
    return {
        **dict.fromkeys(SERVING_KEYS, pair.key),
        **dict.fromkeys(SERVING_CERTIFICATES, pair.certificate),
    }


def _secret_write(secret: Secret | None, change: Mapping[str, bytes | None]) -> SecretCreation | SecretUpdate:
    if secret is None:
        return SecretCreation({key: value for key, value in change.items() if value is not None})
    return SecretUpdate(secret.metadata.resource_version, change)


def _pair(data: Mapping[str, bytes], key: str, certificate: str) -> KeyPair:
    return KeyPair(data[key], data[certificate])


# the configurations and the server


def _entries(configurations: Iterable[WebhookConfiguration], service: Service) -> list[tuple[str, ClientConfig]]:
    """Name and client configuration of each entry that calls ``service``."""
    return [
        (webhook.name, webhook.client_config)
        for configuration in configurations
        for webhook in configuration.webhooks or ()
        if service.is_target(webhook.client_config)
    ]


def _bundle_updates(
    configurations: Iterable[WebhookConfiguration], service: Service, desired: Callable[[bytes], bytes]
) -> list[CABundleUpdate]:
    """One for each configuration of which an entry's ``caBundle`` is not as ``desired``, which sees the present one."""
    updates = []
    for configuration in configurations:
        ca_bundles = {}
        for name, config in _entries([configuration], service):
            present = config.ca_bundle or b""
            ca_bundle = desired(present)
            if not certificates.same_certificates(present, ca_bundle):
                ca_bundles[name] = ca_bundle
        if ca_bundles:
            metadata = configuration.metadata
            updates.append(CABundleUpdate(configuration.kind, metadata.name, metadata.resource_version, ca_bundles))
    return updates


def _reload(
    stored: ServingCertificate, serving: ServingCertificate | None, bundles: Sequence[bytes], now: datetime
) -> tuple[ContextReload, ...]:
    """The server takes up ``stored`` if all clients verify it, or if they do not verify ``serving`` any more either."""
    if stored == serving:
        return ()

    def is_trusted(certificate: ServingCertificate) -> bool:
        return all(certificates.trusts(ca_bundle, certificate.pair.certificate, now) for ca_bundle in bundles)

    if serving is None or serving.pair == stored.pair or is_trusted(stored) or not is_trusted(serving):
        return (ContextReload(stored),)
    return ()


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _rfc3339(time: datetime) -> bytes:
    return time.astimezone(UTC).isoformat().encode()


def _time(data: Mapping[str, bytes], key: str, now: datetime) -> datetime | None:
    """The time at ``key``; None if there is none, or one that is still to come."""
    try:
        time = datetime.fromisoformat(data.get(key, b"").decode())
        return time if time <= now else None
    except (ValueError, TypeError):  # TypeError: without a time zone
        return None
