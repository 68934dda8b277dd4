"""The extenders of a KubeSchedulerConfiguration: programs that are asked by HTTP about the pods of this scheduler.

What a file says of one is checked as upstream checks it, and its certificates are read at once: one that cannot be used
is an error of the file. Sources: pkg/scheduler/apis/config/v1, pkg/scheduler/apis/config/validation, and for TLS
pkg/scheduler/extender.go.
"""

from __future__ import annotations

import base64
import binascii
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from koord.kube.credentials import TLSMaterial
from koord.model.core import Slim
from koord.model.selector import label_error
from koord.service import optionvalues
from koord_scheduler.documentreader import DocumentReader

_TIMEOUT_S = 5.0
_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


@dataclass(frozen=True)
class ExtenderSettings:
    """``url``: without a slash at its end. A verb "" is none of the extender's. ``managed``: the resources of the pods
    that it is asked about; none: it is asked about all pods. ``is_node_cache_capable``: it knows the nodes, and gets
    their names alone. ``tls`` None: as Python has it, with the machine's authorities.
    """

    url: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    preempt_verb: str = ""
    bind_verb: str = ""
    weight: int = 0
    timeout_s: float = _TIMEOUT_S
    managed: frozenset[str] = frozenset()
    is_node_cache_capable: bool = False
    is_ignorable: bool = False
    tls: ssl.SSLContext | None = None
    server_name: str | None = None


class ManagedResource(Slim, frozen=True):
    name: str
    ignored_by_scheduler: bool = False


class TLSConfig(Slim, frozen=True):
    insecure: bool | None = None
    server_name: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    ca_file: str | None = None
    cert_data: str | None = None
    key_data: str | None = None
    ca_data: str | None = None


class ExtenderDocument(Slim, frozen=True):
    url_prefix: str | None = None
    filter_verb: str | None = None
    preempt_verb: str | None = None
    prioritize_verb: str | None = None
    weight: _Int32 | None = None
    bind_verb: str | None = None
    enable_https: bool | None = msgspec.field(default=None, name="enableHTTPS")
    tls_config: TLSConfig | None = None
    http_timeout: str | None = None
    node_cache_capable: bool | None = None
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool | None = None


def read(document: object, path: str, reader: DocumentReader) -> tuple[tuple[ExtenderSettings, ...], frozenset[str]]:
    """Returns the extenders in the order in which they are asked, those that are ignorable last, and the resources that
    the scheduler itself is not to look at.
    """
    found: list[ExtenderSettings] = []
    managed: set[str] = set()
    ignored: set[str] = set()
    binders = 0
    for place, item in reader.items(document, path):
        said = reader.read(ExtenderDocument, item, place)
        found.append(_settings(said, place, reader))
        for index, each in enumerate(said.managed_resources):
            if label_error(each.name) or "/" not in each.name or each.name in managed:
                why = "is managed before" if each.name in managed else "is not the name of an extended resource"
                reader.wrong(f"{place}.managedResources[{index}].name", each.name, why)
            managed.add(each.name)
            if each.ignored_by_scheduler:
                ignored.add(each.name)
        binders += bool(said.bind_verb)
        if said.bind_verb and binders == 2:
            reader.wrong(f"{place}.bindVerb", said.bind_verb, "is a second one: one extender can bind")
    return tuple(sorted(found, key=lambda each: each.is_ignorable)), frozenset(ignored)


def _settings(said: ExtenderDocument, path: str, reader: DocumentReader) -> ExtenderSettings:
    url = said.url_prefix or ""
    if not _is_address(url):
        reader.wrong(f"{path}.urlPrefix", said.url_prefix, "is no address such as https://extender.example:8443/path")
    if said.prioritize_verb and (said.weight or 0) <= 0:
        reader.wrong(f"{path}.weight", said.weight, "is not more than 0, as an extender that scores has it")
    tls = said.tls_config or TLSConfig()
    return ExtenderSettings(
        url.rstrip("/"),
        said.filter_verb or "",
        said.prioritize_verb or "",
        said.preempt_verb or "",
        said.bind_verb or "",
        said.weight or 0,
        _timeout_s(said.http_timeout, f"{path}.httpTimeout", reader),
        frozenset(each.name for each in said.managed_resources),
        bool(said.node_cache_capable),
        bool(said.ignorable),
        _tls(said, url, path, reader),
        (tls.server_name or None) if url.startswith("https://") else None,
    )


def _is_address(url: str) -> bool:
    try:
        split = urlsplit(url)
        return split.scheme in ("http", "https") and bool(split.hostname) and (split.port or 1) > 0
    except ValueError:
        return False


def _timeout_s(text: str | None, path: str, reader: DocumentReader) -> float:
    """0 is not said, as in Go."""
    try:
        return (optionvalues.duration_s(text) if text else 0) or _TIMEOUT_S
    except ValueError as error:
        reader.wrong(path, text, f"is {error}")
        return _TIMEOUT_S


def _tls(said: ExtenderDocument, url: str, path: str, reader: DocumentReader) -> ssl.SSLContext | None:
    """As client-go makes it: data win over files, and without an authority ``enableHTTPS`` checks no certificate."""
    if not url.startswith("https://"):
        for name, value in (("tlsConfig", said.tls_config and {}), ("enableHTTPS", said.enable_https or None)):
            reader.no_effect(f"{path}.{name}", value, "the address is one of plain HTTP")
        return None
    if said.tls_config is None and not said.enable_https:
        return None
    tls, place = said.tls_config or TLSConfig(), f"{path}.tlsConfig"
    authority = _pem(tls.ca_data, tls.ca_file, f"{place}.ca", reader)
    certificate = _pem(tls.cert_data, tls.cert_file, f"{place}.cert", reader)
    key = _pem(tls.key_data, tls.key_file, f"{place}.key", reader)
    if tls.insecure and authority is not None:
        reader.wrong(f"{place}.insecure", True, "does not go with an authority")
    if (certificate is None) != (key is None):
        reader.wrong(place, {}, "has one of a certificate and its key alone")
        return None
    if said.enable_https and authority is None and not tls.insecure:
        reader.notes.append(f"{path}.enableHTTPS: the extender's certificate is not checked without tlsConfig.caFile")
    is_checked = not tls.insecure and (authority is not None or not said.enable_https)
    try:
        return TLSMaterial(authority, certificate, key, is_checked).context()
    except (OSError, ValueError) as error:
        reader.wrong(place, {}, f"cannot be used: {error}")
        return None


def _pem(data: str | None, file: str | None, path: str, reader: DocumentReader) -> bytes | None:
    """Returns what the member ``…Data``, or the file of ``…File``, holds; None: neither is said, or it is wrong."""
    try:
        if data:
            return base64.b64decode(data, validate=True)
        return Path(file).read_bytes() if file else None
    except binascii.Error as error:
        reader.wrong(f"{path}Data", "…", f"is not base64: {error}")
    except OSError as error:
        reader.wrong(f"{path}File", file, f"cannot be read: {error.strerror}")
    return None
