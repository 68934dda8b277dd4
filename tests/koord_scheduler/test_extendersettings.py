"""Extenders in a KubeSchedulerConfiguration: what is wrong with them, and what follows from them."""

from __future__ import annotations

import base64
import json
import re
import ssl
from pathlib import Path
from typing import Any

import pytest

from koord.scheduling.plugins.resources import NodeResourcesFit
from koord_scheduler import configuration
from koord_scheduler.configuration import Configuration, ConfigurationError
from tests.kube.authority import Authority

HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
HTTPS = {"urlPrefix": "https://x/path/", "filterVerb": "f"}


def read(*extenders: Any, **document: Any) -> Configuration:
    return configuration.parse(json.dumps(HEAD | {"extenders": extenders} | document), "f")


def test_an_extender_with_everything() -> None:
    said = {
        "urlPrefix": "http://x:80/path/",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "weight": 3,
        "httpTimeout": "1m30s",
        "nodeCacheCapable": True,
        "ignorable": True,
        "managedResources": [{"name": "a.b/c", "ignoredByScheduler": True}, {"name": "a.b/d"}],
        "enableHTTPS": False,
    }
    (found,) = read(said).extenders
    assert found.url == "http://x:80/path"
    assert (found.filter_verb, found.prioritize_verb, found.preempt_verb, found.bind_verb) == (
        *("filter", "prioritize", "preempt", "bind"),
    )
    assert (found.weight, found.timeout_s, found.managed) == (3, 90, {"a.b/c", "a.b/d"})
    assert (found.is_node_cache_capable, found.is_ignorable, found.tls, found.server_name) == (True, True, None, None)


def test_an_extender_with_nothing() -> None:
    (found,) = read({"urlPrefix": "http://x", "httpTimeout": "0"}).extenders
    assert (found.timeout_s, found.managed, found.is_node_cache_capable, found.is_ignorable) == (5, set(), False, False)


def test_ignorable_ones_are_asked_last() -> None:
    said = [{"urlPrefix": f"http://{name}", "ignorable": name in "ac"} for name in "abcd"]
    assert [each.url[-1] for each in read(*said).extenders] == ["b", "d", "a", "c"]


def test_a_resource_that_the_scheduler_is_to_ignore() -> None:
    """In every profile, beside those that its own arguments name."""
    arguments = [{"name": "NodeResourcesFit", "args": {"ignoredResources": ["x.y/z"]}}]
    said = {"urlPrefix": "http://x", "managedResources": [{"name": "a.b/c", "ignoredByScheduler": True}]}
    profiles = [{"schedulerName": "s"}, {"schedulerName": "t", "pluginConfig": arguments}]
    found = [
        each.plugin.ignored
        for profile in read(said, profiles=profiles).profiles
        for each in profile.plugins
        if isinstance(each.plugin, NodeResourcesFit)
    ]
    assert found == [{"a.b/c"}, {"a.b/c", "x.y/z"}]


NO_ADDRESS = "is no address such as https://extender.example:8443/path"


@pytest.mark.parametrize(
    ("extenders", "lines"),
    [
        ({}, ["extenders: an object is not a list"]),
        ([{"prioritizeVerb": "p", "bindVerb": "b", "httpTimeout": "5"},
          {"urlPrefix": "http://x", "bindVerb": "b", "verb": "c", "managedResources": [{"name": "cpu"}]},
          {"urlPrefix": "http://x", "weight": 2**31,
           "managedResources": [{"name": "a.b/c"}, {"name": "a.b/c"}, {"name": "a.b/-"}]}],
         [f"extenders[0].urlPrefix: None {NO_ADDRESS}",
          "extenders[0].weight: None is not more than 0, as an extender that scores has it",
          "extenders[0].httpTimeout: '5' is not a duration such as 300ms, 3s or 1m30s",
          "extenders[1].verb: 'c' has no meaning: there is no such field",
          "extenders[1].managedResources[0].name: 'cpu' is not the name of an extended resource",
          "extenders[1].bindVerb: 'b' is a second one: one extender can bind",
          "extenders[2].weight: 2147483648 is not in -2147483648..2147483647",
          "extenders[2].managedResources[1].name: 'a.b/c' is managed before",
          "extenders[2].managedResources[2].name: 'a.b/-' is not the name of an extended resource"]),
        ([{"urlPrefix": url} for url in ("", "x:80", "ftp://x", "http://", "http://x:a", "http://[x")],
         [f"extenders[{index}].urlPrefix: {url!r} {NO_ADDRESS}"
          for index, url in enumerate(("", "x:80", "ftp://x", "http://", "http://x:a", "http://[x"))]),
        ([HTTPS | {"tlsConfig": {"caFile": "/none", "certFile": "/", "certData": "?"}}],
         ["extenders[0].tlsConfig.caFile: '/none' cannot be read: No such file or directory",
          "extenders[0].tlsConfig.certData: '…' is not base64: Only base64 data is allowed"]),
        ([HTTPS | {"tlsConfig": {"certFile": "/none"}}],
         ["extenders[0].tlsConfig.certFile: '/none' cannot be read: No such file or directory"]),
        ([HTTPS | {"tlsConfig": {"insecure": True, "caData": base64.b64encode(b"no PEM").decode()}}],
         ["extenders[0].tlsConfig.insecure: True does not go with an authority",
          "extenders[0].tlsConfig: an object cannot be used"]),
        ([HTTPS | {"tlsConfig": {"keyData": base64.b64encode(b"secret").decode()}}],
         ["extenders[0].tlsConfig: an object has one of a certificate and its key alone"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_all_at_once(extenders: Any, lines: list[str]) -> None:
    with pytest.raises(ConfigurationError) as error:
        configuration.parse(json.dumps(HEAD | {"extenders": extenders}), "f")
    found = [line.removeprefix("f: ") for line in str(error.value).splitlines()]
    assert [re.sub("(?<=cannot be used): .*", "", line) for line in found] == lines, "OpenSSL's words may change"


@pytest.mark.parametrize(
    ("said", "is_checked", "notes"),
    [
        ({}, None, []),
        ({"enableHTTPS": True}, False, ["is not checked without tlsConfig.caFile"]),
        ({"enableHTTPS": True, "tlsConfig": {"caFile": "ca"}}, True, []),
        ({"tlsConfig": {"serverName": "s"}}, True, []),
        ({"tlsConfig": {"insecure": True}}, False, []),
        ({"enableHTTPS": True, "tlsConfig": {"insecure": True}}, False, []),
        ({"tlsConfig": {"caFile": "ca", "certFile": "pair", "keyFile": "pair"}}, True, []),
    ],
)
def test_how_an_extender_is_reached_by_https(
    tmp_path: Path, said: dict[str, Any], is_checked: bool | None, notes: list[str]
) -> None:
    authority = Authority()
    (tmp_path / "ca").write_bytes(authority.pem)
    (tmp_path / "pair").write_bytes(authority.issue("koord"))
    tls = said.get("tlsConfig", {})
    tls = {name: str(tmp_path / value) if name.endswith("File") else value for name, value in tls.items()}
    found = read(HTTPS | said | ({"tlsConfig": tls} if tls else {}))
    (extender,) = found.extenders
    if is_checked is None:
        assert extender.tls is None
    else:
        assert extender.tls is not None
        assert (extender.tls.verify_mode is ssl.CERT_REQUIRED) is is_checked
    assert extender.server_name == tls.get("serverName")
    assert [note.partition("certificate ")[2] for note in found.notes] == notes


def test_what_is_said_of_tls_for_plain_http_has_no_effect() -> None:
    found = read({"urlPrefix": "http://x", "enableHTTPS": True, "tlsConfig": {"caFile": "/none", "serverName": "s"}})
    assert [note.partition(": ")[0] for note in found.notes] == ["extenders[0].tlsConfig", "extenders[0].enableHTTPS"]
    assert found.extenders[0].server_name is None
