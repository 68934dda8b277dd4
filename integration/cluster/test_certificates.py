"""Certificates name their holder, keys are secret, and a rotation replaces both files."""

from __future__ import annotations

import ipaddress
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from integration.cluster.certificates import Authority, file_name

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_a_client_is_its_common_name_in_its_organizations(tmp_path: Path) -> None:
    authority = Authority(tmp_path, lambda: NOW)
    certificate = read(authority.issue_client("system:node:n1", ["system:nodes", "more"]).certificate)
    names = {attribute.oid: attribute.value for attribute in certificate.subject}
    assert names[NameOID.COMMON_NAME] == "system:node:n1"
    organizations = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [each.value for each in organizations] == ["system:nodes", "more"]
    certificate.verify_directly_issued_by(read(authority.certificate))


def test_a_server_has_names_and_addresses(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue_server("server", ["127.0.0.1", "kubernetes.default"])
    hosts = read(pair.certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts.get_values_for_type(x509.DNSName) == ["kubernetes.default"]
    assert hosts.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]


def test_validity_is_of_the_clock_and_the_lifetime(tmp_path: Path) -> None:
    authority = Authority(tmp_path, lambda: NOW)
    for lifetime in (timedelta(hours=1), timedelta(hours=-1)):
        certificate = read(authority.issue_client("bob", (), lifetime).certificate)
        assert certificate.not_valid_after_utc == NOW + lifetime
        assert certificate.not_valid_before_utc < min(NOW, NOW + lifetime)


def test_keys_are_for_their_owner_only_and_change_with_the_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    first = authority.issue_client("bob")
    before = (first.key.read_bytes(), first.certificate.read_bytes())
    second = authority.issue_client("bob")
    assert second == first
    after = (second.key.read_bytes(), second.certificate.read_bytes())
    assert before[0] != after[0] and before[1] != after[1]
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("*.key")} == {0o600}
    assert {path.name for path in tmp_path.iterdir()} == {"ca.crt", "ca.key", "bob.crt", "bob.key"}


def test_users_in_other_groups_have_other_files(tmp_path: Path) -> None:
    assert file_name("system:node:n1", ["system:nodes"]) == "system-node-n1.system-nodes"
    authority = Authority(tmp_path)
    assert authority.issue_client("bob", ["dev"]).key != authority.issue_client("bob").key
