"""The Secret, the ``caBundle`` and what replicas serve: no step leaves a client that cannot verify a server.

Tables of single plans; `test_servingraces` has what follows from them when replicas race, `test_servingloop` the years.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache

import msgspec
import pytest

from koord.model import core
from koord.model.core import ObjectMeta
from koord.tls import certificates
from koord.tls.certificates import SERVING_LIFETIME, CertificateCondition, ServingCertificate
from koord.tls.servingcerts import (
    PROVIDED_OVERLAP,
    SETTLE,
    CABundleUpdate,
    CertificatePlan,
    ClientConfig,
    ContextReload,
    Observation,
    Secret,
    SecretCreation,
    SecretUpdate,
    Service,
    ServiceReference,
    Webhook,
    WebhookConfiguration,
    plan,
)
from tests.tls.pki import (
    HOUR,
    KINDS,
    NAMES,
    NOW,
    OURS,
    PLACEHOLDER,
    SERVICE,
    YEAR,
    own_data,
    provided_data,
    secret_data,
    upstream_data,
)


def configuration(
    ca_bundle: bytes, kind: str = KINDS[0], version: str = "1", config: ClientConfig | None = None
) -> WebhookConfiguration:
    webhook = Webhook("mpod.koordinator.sh", config or ClientConfig(service=OURS, ca_bundle=ca_bundle))
    return WebhookConfiguration(kind, ObjectMeta(name=kind.lower(), resource_version=version), (webhook,))


def secret(data: Mapping[str, bytes], version: str = "1", type: str = "Opaque") -> Secret:
    return Secret(ObjectMeta(name="koordinator-webhook-certs", resource_version=version), type, data)


def serving(data: Mapping[str, bytes], ca_bundle: bytes | None = None) -> ServingCertificate:
    pair = certificates.KeyPair(data["tls.key"], data["tls.crt"])
    return ServingCertificate(pair, data["ca-cert.pem"] if ca_bundle is None else ca_bundle)


def planned(
    stored: Secret | None,
    *ca_bundles: bytes,
    now: datetime = NOW,
    server: ServingCertificate | None = None,
) -> CertificatePlan:
    configurations = tuple(configuration(each, kind) for each, kind in zip(ca_bundles, KINDS, strict=False))
    return plan(Observation(configurations, stored), server, SERVICE, now)


def the_update(step: CertificatePlan) -> Mapping[str, bytes | None]:
    (action,) = step.actions
    assert isinstance(action, SecretUpdate)
    return action.data


def changed(data: Mapping[str, bytes], change: Mapping[str, bytes | None]) -> dict[str, bytes]:
    return {key: value for key, value in {**data, **change}.items() if value is not None}


_own, _upstream = cache(own_data), cache(upstream_data)


# single plans


def test_without_a_secret_one_is_made() -> None:
    (action,) = planned(None, PLACEHOLDER).actions
    assert isinstance(action, SecretCreation)
    assert set(action.data) == {"ca-key.pem", "ca-cert.pem", "key.pem", "tls.key", "cert.pem", "tls.crt"}
    assert certificates.judge(action.data, NAMES, NOW).condition is CertificateCondition.FINE


@pytest.mark.parametrize("data", [None, {}], ids=["null", "empty"])
def test_the_charts_empty_secret_is_filled(data: dict[str, bytes] | None) -> None:
    stored = Secret(ObjectMeta(resource_version="7"), data=data)
    (action,) = planned(stored, PLACEHOLDER).actions
    assert isinstance(action, SecretUpdate) and action.resource_version == "7"
    assert action.data["tls.crt"] is not None


def test_nothing_to_do() -> None:
    data = _own(NOW)
    step = planned(secret(data), data["ca-cert.pem"], data["ca-cert.pem"], server=serving(data))
    assert step.actions == ()
    assert step.why.startswith("tls.crt is valid until 2027-11-25")


def test_a_replica_that_serves_nothing_loads_at_once_and_bundles_are_written() -> None:
    data = _own(NOW)
    ca_bundle = data["ca-cert.pem"]
    assert planned(secret(data), PLACEHOLDER, ca_bundle).actions == (
        ContextReload(serving(data)),
        CABundleUpdate(KINDS[0], KINDS[0].lower(), "1", {"mpod.koordinator.sh": ca_bundle}),
    )


def test_the_old_certificate_is_served_until_every_configuration_verifies_the_new_one() -> None:
    old, new = _own(NOW), own_data(NOW)
    both = new["ca-cert.pem"] + old["ca-cert.pem"]
    stored = secret({**new, "previous-ca-certs.pem": old["ca-cert.pem"], "ca-signing-since": b"2026-11-25T12:00:00Z"})
    server = serving(old)
    waiting = planned(stored, both, old["ca-cert.pem"], server=server).actions
    assert [type(each) for each in waiting] == [CABundleUpdate]
    assert planned(stored, both, both, server=server).actions == (ContextReload(serving(new, both)),)


@pytest.mark.parametrize(
    ("server_bundle", "is_taken"),
    [(b"", True), (PLACEHOLDER, True)],
    ids=["nothing trusted", "a placeholder"],
)
def test_what_nobody_verifies_any_more_is_not_held_on_to(server_bundle: bytes, is_taken: bool) -> None:
    """Neither the old nor the new one is verified: a chart was installed anew."""
    data, old = _own(NOW), own_data(NOW)
    step = planned(secret(data), server_bundle, server=serving(old))
    assert (ContextReload(serving(data)) in step.actions) is is_taken


def test_a_certificate_that_has_expired_is_not_held_on_to() -> None:
    data, old = _own(NOW), own_data(NOW - YEAR)
    step = planned(secret(data), old["ca-cert.pem"], server=serving(old))
    assert ContextReload(serving(data)) in step.actions


@pytest.mark.parametrize(
    ("change", "condition"),
    [({"tls.crt": b""}, CertificateCondition.RENEW_SERVING), ({"key.pem": b""}, CertificateCondition.RENEW_SERVING)],
)
def test_a_bad_serving_certificate_is_replaced_and_its_authority_kept(
    change: dict[str, bytes], condition: CertificateCondition
) -> None:
    data = {**_own(NOW), **change}
    assert certificates.judge(data, NAMES, NOW).condition is condition
    update = the_update(planned(secret(data), data["ca-cert.pem"]))
    assert set(update) == {"tls.key", "tls.crt", "key.pem", "cert.pem"}
    assert certificates.judge(changed(data, update), NAMES, NOW).condition is CertificateCondition.FINE


@pytest.mark.parametrize("kept", [("ca-cert.pem",), ()], ids=["known from the Secret", "known from a configuration"])
def test_a_broken_secret_is_made_anew_and_the_old_authorities_stay_trusted(kept: tuple[str, ...]) -> None:
    old = _own(NOW)
    stored = secret({key: old[key] for key in kept})
    ca_bundle = PLACEHOLDER if kept else old["ca-cert.pem"]
    data = changed(stored.data or {}, the_update(planned(stored, ca_bundle)))
    assert data["previous-ca-certs.pem"] == old["ca-cert.pem"]
    (_, update) = planned(secret(data), PLACEHOLDER).actions
    assert isinstance(update, CABundleUpdate)
    assert update.ca_bundles["mpod.koordinator.sh"] == data["ca-cert.pem"] + old["ca-cert.pem"]


def test_upstreams_secret_is_taken_over_with_its_authority() -> None:
    data = _upstream(NOW)
    update = the_update(planned(secret(data), data["ca-cert.pem"]))
    taken_over = changed(data, update)
    assert taken_over["ca-cert.pem"] == data["ca-cert.pem"]
    assert certificates.trusts(data["ca-cert.pem"], taken_over["tls.crt"], NOW)


# the rotation of the authority, write by write


def due_data() -> dict[str, bytes]:
    """Its authority has lived two thirds of its life, its serving certificate is new."""
    ca = certificates.issue_ca(NOW - 2 * YEAR)
    return secret_data(ca, certificates.issue_serving(ca, NAMES, NOW))


def announced() -> dict[str, bytes]:
    data = due_data()
    return changed(data, the_update(planned(secret(data), data["ca-cert.pem"])))


def ca_bundle_of(data: Mapping[str, bytes]) -> bytes:
    keys = ("ca-cert.pem", "next-ca-cert.pem", "previous-ca-certs.pem")
    return certificates.bundle((data.get(key, b"") for key in keys), NOW)


def test_a_new_authority_is_announced_before_it_signs() -> None:
    data = due_data()
    update = the_update(planned(secret(data), data["ca-cert.pem"]))
    assert {key for key, value in update.items() if value is not None} == {"next-ca-key.pem", "next-ca-cert.pem"}
    after = changed(data, update)
    (update_of_bundle,) = planned(
        secret(after), data["ca-cert.pem"], server=serving(after, ca_bundle_of(after))
    ).actions
    assert isinstance(update_of_bundle, CABundleUpdate)
    assert update_of_bundle.ca_bundles["mpod.koordinator.sh"] == data["ca-cert.pem"] + after["next-ca-cert.pem"]


@pytest.mark.parametrize(
    ("since", "are_all_told", "change"),
    [
        (None, False, None),
        (None, True, "stamp"),
        (NOW, False, "no stamp"),
        (NOW, True, None),
        (NOW - SETTLE + timedelta(seconds=1), True, None),
        (NOW - SETTLE, True, "signs"),
        (NOW - SETTLE, False, "no stamp"),
        (NOW + HOUR, True, "stamp"),
    ],
    ids=[
        "nobody knows",
        "all know",
        "one has forgotten",
        "all know, for no time",
        "all know, for nearly long enough",
        "all know, for long enough",
        "one has forgotten after long enough",
        "a clock was ahead",
    ],
)
def test_it_signs_when_all_have_known_it_for_long_enough(
    since: datetime | None, are_all_told: bool, change: str | None
) -> None:
    data = announced()
    if since is not None:
        data["next-ca-trusted-since"] = since.isoformat().encode()
    whole = ca_bundle_of(data)
    step = planned(secret(data), whole, whole if are_all_told else data["ca-cert.pem"], server=serving(data, whole))
    update = next((each.data for each in step.actions if isinstance(each, SecretUpdate)), {})
    wanted = {
        None: {},
        "stamp": {"next-ca-trusted-since": NOW.isoformat().encode()},
        "no stamp": {"next-ca-trusted-since": None},
    }
    if change != "signs":
        assert update == wanted[change]
        return
    after = changed(data, update)
    assert after["ca-cert.pem"] == data["next-ca-cert.pem"]
    assert after["ca-key.pem"] == data["next-ca-key.pem"]
    assert after["previous-ca-certs.pem"] == data["ca-cert.pem"]
    assert certificates.judge(after, NAMES, NOW).condition is CertificateCondition.FINE
    assert not [key for key in after if key.startswith("next-")]


def test_a_spoilt_announcement_is_made_again() -> None:
    data = {**announced(), "next-ca-key.pem": b"nonsense", "next-ca-trusted-since": NOW.isoformat().encode()}
    after = changed(data, the_update(planned(secret(data), ca_bundle_of(data))))
    assert certificates.read_ca(after, NOW, "next-ca-key.pem", "next-ca-cert.pem")
    assert "next-ca-trusted-since" not in after


@pytest.mark.parametrize(
    ("since", "change"),
    [
        (NOW.isoformat(), {}),
        ((NOW - SERVING_LIFETIME + timedelta(seconds=1)).isoformat(), {}),
        ((NOW - SERVING_LIFETIME).isoformat(), {"previous-ca-certs.pem": None, "ca-signing-since": None}),
        ((NOW + HOUR).isoformat(), {"ca-signing-since": NOW.isoformat().encode()}),
        ("2026-11-25T12:00:00", {"ca-signing-since": NOW.isoformat().encode()}),
        ("nonsense", {"ca-signing-since": NOW.isoformat().encode()}),
    ],
    ids=["just now", "nearly a year ago", "a year ago", "in the future", "no zone", "nonsense"],
)
def test_an_old_authority_goes_when_all_that_it_signed_has_expired(since: str, change: dict[str, bytes | None]) -> None:
    old = certificates.issue_ca(NOW).certificate
    data = {**_own(NOW), "previous-ca-certs.pem": old, "ca-signing-since": since.encode()}
    whole = ca_bundle_of(data)
    step = planned(secret(data), whole, server=serving(data, whole))
    assert (the_update(step) if step.actions else {}) == change


# a provided Secret


@pytest.mark.parametrize("annotated", [False, True], ids=["by type", "by cert-manager's annotation"])
def test_a_provided_secret_is_used_as_it_is(annotated: bool) -> None:
    data = provided_data(NOW)
    stored = secret(data, type="kubernetes.io/tls")
    if annotated:
        metadata = ObjectMeta(annotations={"cert-manager.io/certificate-name": "webhook"})
        stored = Secret(metadata, "Opaque", data)
    loaded = serving(data, data["ca.crt"])
    assert planned(stored, PLACEHOLDER).actions == (
        ContextReload(loaded),
        CABundleUpdate(KINDS[0], KINDS[0].lower(), "1", {"mpod.koordinator.sh": data["ca.crt"]}),
    )
    assert planned(stored, data["ca.crt"], server=loaded).actions == ()


@pytest.mark.parametrize(
    ("age", "is_kept"),
    [(timedelta(0), True), (PROVIDED_OVERLAP - timedelta(seconds=1), True), (PROVIDED_OVERLAP, False)],
)
def test_beside_a_new_provided_authority_the_old_one_stays_for_a_day(age: timedelta, is_kept: bool) -> None:
    data, old = provided_data(NOW - age), certificates.issue_ca(NOW).certificate
    stored = secret(data, type="kubernetes.io/tls")
    desired = data["ca.crt"] + old if is_kept else data["ca.crt"]
    (update,) = planned(stored, old, server=serving(data, data["ca.crt"])).actions
    assert isinstance(update, CABundleUpdate) and update.ca_bundles["mpod.koordinator.sh"] == desired
    both = planned(stored, data["ca.crt"] + old, server=serving(data, data["ca.crt"]))
    assert bool(both.actions) is not is_kept


def test_without_a_provided_authority_no_bundle_is_touched() -> None:
    data = {**provided_data(NOW), "ca.crt": b""}
    step = planned(secret(data, type="kubernetes.io/tls"), PLACEHOLDER)
    assert step.actions == (ContextReload(serving(data, b"")),)
    assert step.why.endswith("without ca.crt, caBundle is left to whoever provides it")


def test_a_provided_secret_that_cannot_be_used_changes_nothing() -> None:
    step = planned(secret({}, type="kubernetes.io/tls"), PLACEHOLDER, server=serving(_own(NOW)))
    assert step == CertificatePlan((), "tls.crt is missing")


# which entries


@pytest.mark.parametrize(
    ("config", "is_ours"),
    [
        (ClientConfig(service=OURS), True),
        (ClientConfig(service=OURS, ca_bundle=PLACEHOLDER), True),
        (ClientConfig(service=ServiceReference(SERVICE.name, "other")), False),
        (ClientConfig(service=ServiceReference("other", SERVICE.namespace)), False),
        (ClientConfig(url="https://localhost:9876/mutate-pod"), True),
        (ClientConfig(url="https://10.0.0.1:9876/mutate-pod"), True),
        (ClientConfig(url="https://other:9876/mutate-pod"), False),
        (ClientConfig(url="https://[nonsense"), False),
        (ClientConfig(), False),
    ],
)
def test_only_entries_that_call_us_are_written(config: ClientConfig, is_ours: bool) -> None:
    service = Service(SERVICE.name, SERVICE.namespace, ("10.0.0.1",))
    ca = certificates.issue_ca(NOW)
    data = secret_data(ca, certificates.issue_serving(ca, service.names, NOW))
    foreign_entry = Webhook("x.example", ClientConfig(service=ServiceReference("x", "x")))
    configured = WebhookConfiguration(KINDS[0], ObjectMeta(name="mine"), (foreign_entry, Webhook("y", config)))
    step = plan(Observation((configured,), secret(data)), serving(data), service, NOW)
    assert [each.ca_bundles for each in step.actions if isinstance(each, CABundleUpdate)] == (
        [{"y": data["ca-cert.pem"]}] if is_ours else []
    )


# as the API server writes and reads them


def test_what_the_api_server_says_is_read() -> None:
    data = _own(NOW)
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    document = {"kind": "Secret", "type": "Opaque", "data": encoded, "metadata": {"resourceVersion": "5"}}
    stored = core.read(Secret, msgspec.json.encode(document))
    assert (stored.data, stored.metadata.resource_version, stored.is_provided) == (data, "5", False)
    ca_bundle = base64.b64encode(data["ca-cert.pem"]).decode()
    service = {"name": SERVICE.name, "namespace": SERVICE.namespace, "path": "/mutate-pod", "port": 443}
    webhook = {"name": "a", "clientConfig": {"service": service, "caBundle": ca_bundle}, "sideEffects": "None"}
    listed = core.read(WebhookConfiguration, msgspec.json.encode({"kind": KINDS[0], "webhooks": [webhook]}))
    assert listed.webhooks == (Webhook("a", ClientConfig(service=OURS, ca_bundle=data["ca-cert.pem"])),)
    assert core.read(WebhookConfiguration, b'{"webhooks": null, "metadata": {}}').webhooks is None


def test_patches_name_the_version_they_were_made_of() -> None:
    assert SecretUpdate("5", {"a": b"x", "b": None}).merge_patch == {
        "metadata": {"resourceVersion": "5"},
        "data": {"a": "eA==", "b": None},
    }
    assert CABundleUpdate(KINDS[0], "mine", "6", {"a": b"x"}).strategic_merge_patch == {
        "metadata": {"resourceVersion": "6"},
        "webhooks": [{"name": "a", "clientConfig": {"caBundle": "eA=="}}],
    }
