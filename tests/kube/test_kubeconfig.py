"""Where the server is and who we are, as files say it; and which file is wrong, and where."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from koord.kube.kubeconfig import ExecPlugin, KubeconfigError, RESTConfig, find, in_cluster, read_kubeconfig

PEM = b"-----BEGIN CERTIFICATE-----\n"


def document(cluster: Mapping[str, Any], user: Mapping[str, Any], /, **context: str) -> dict[str, Any]:
    return {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", **context}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443/", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }


def written(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


@pytest.mark.parametrize(
    ("content", "context", "why"),
    [
        ("{", "", "config: is not YAML: "),
        ("[]", "", "config: is not a kubeconfig"),
        ("{}", "", "config: no context is named, and none is current"),
        ("current-context: 3", "", "config: current-context 3 is not text"),
        (document({}, {}), "there", "config: has no context 'there'"),
        (document({}, {}, cluster="other"), "", "config: has no cluster 'other'"),
        (document({}, {}, user="other"), "", "config: has no user 'other'"),
        (document({"server": ""}, {}), "", "config: cluster 'c': server '' is no URL"),
        (document({"server": "api:6443"}, {}), "", "config: cluster 'c': server 'api:6443' is no URL"),
        (document({"server": 1}, {}), "", "config: cluster 'c': server 1 is not text"),
        (document({}, {"token": ["x"]}), "", "config: user 'u': token ['x'] is not text"),
        (document({}, {"client-key-data": "!"}), "", "config: user 'u': client-key-data is not base64: "),
        (document({}, {"exec": {"args": ["x"]}}), "", "config: user 'u': exec: lacks its command"),
        (
            document({}, {"exec": {"command": "login", "interactiveMode": "Always"}}),
            "",
            "config: user 'u': exec: login wants a terminal",
        ),
        (
            {"current-context": "here", "contexts": [3, {"name": "here", "context": []}]},
            "",
            "config: has no cluster ''",
        ),
        ({"current-context": "here", "contexts": [{"name": "here", "context": [1]}]}, "", "is not an object"),
    ],
    ids=range(16),
)
def test_what_is_wrong_is_named(tmp_path: Path, content: Any, context: str, why: str) -> None:
    with pytest.raises(KubeconfigError) as caught:
        read_kubeconfig([written(tmp_path / "config", content)], context)
    assert why in str(caught.value)


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_kubeconfig([tmp_path / "none"])


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="are more than"):
        read_kubeconfig([written(tmp_path / "config", "#" * (5 << 20))])


@pytest.mark.parametrize(
    ("cluster", "user", "members"),
    [
        ({}, {}, {}),
        ({}, {"token": "secret"}, {"token": "secret"}),
        ({}, {"tokenFile": "token"}, {"token_file": Path("token")}),
        ({"certificate-authority": "ca.crt"}, {}, {"ca": Path("ca.crt")}),
        ({"certificate-authority": "/etc/ca.crt"}, {}, {"ca": Path("/etc/ca.crt")}),
        (
            {"certificate-authority": "ca.crt", "certificate-authority-data": base64.b64encode(PEM).decode()},
            {},
            {"ca": PEM},
        ),
        ({"insecure-skip-tls-verify": True}, {}, {"verify": False}),
        ({"insecure-skip-tls-verify": "true"}, {}, {}),
        ({"tls-server-name": "kubernetes"}, {}, {"server_name": "kubernetes"}),
        ({"proxy-url": "http://proxy:3128"}, {}, {"proxy": "http://proxy:3128"}),
        (
            {},
            {"client-certificate": "c.pem", "client-key": "k.pem"},
            {"certificate": Path("c.pem"), "key": Path("k.pem")},
        ),
        ({}, {"client-key-data": base64.b64encode(PEM).decode()}, {"key": PEM}),
    ],
    ids=range(12),
)
def test_members(
    tmp_path: Path, cluster: Mapping[str, Any], user: Mapping[str, Any], members: Mapping[str, Any]
) -> None:
    config = written(tmp_path / "config", document(cluster, user, namespace="team"))
    here: dict[str, Any] = {
        name: tmp_path / value if isinstance(value, Path) else value for name, value in members.items()
    }
    assert read_kubeconfig([config]) == RESTConfig("https://api:6443", namespace="team", files=(config,), **here)


def test_plugins(tmp_path: Path) -> None:
    exec_ = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./login",
        "args": ["--cluster", "a"],
        "env": [{"name": "A", "value": "b"}],
        "provideClusterInfo": True,
        "installHint": "install it",
    }
    config = written(tmp_path / "config", document({}, {"exec": exec_}))
    assert read_kubeconfig([config]).plugin == ExecPlugin(
        "client.authentication.k8s.io/v1",
        str(tmp_path / "login"),
        ("--cluster", "a"),
        (("A", "b"),),
        {"server": "https://api:6443/"},
        "install it",
    )
    exec_ |= {"command": "login", "provideClusterInfo": False, "args": None, "env": None}
    plugin = read_kubeconfig([written(config, document({}, {"exec": exec_}))]).plugin
    assert plugin is not None
    assert (plugin.command, plugin.args, plugin.cluster) == ("login", (), None)


EXTENSIONS = [
    {"name": "other", "extension": {"a": 1}},
    {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "prod"}},
]


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        ({}, {}),
        ({"certificate-authority": "ca.crt"}, {"certificate-authority-data": base64.b64encode(PEM).decode()}),
        (
            {"certificate-authority": "none", "certificate-authority-data": base64.b64encode(b"inline").decode()},
            {"certificate-authority-data": base64.b64encode(b"inline").decode()},
        ),
        ({"extensions": EXTENSIONS}, {"config": {"audience": "prod"}}),
        ({"extensions": EXTENSIONS[:1]}, {}),
        *(
            ({member: value}, {member: value})
            for member, value in (
                ("tls-server-name", "api"),
                ("insecure-skip-tls-verify", True),
                ("proxy-url", "http://proxy"),
                ("disable-compression", True),
            )
        ),
        ({"insecure-skip-tls-verify": False, "unknown": 1}, {}),
    ],
    ids=range(10),
)
def test_what_a_plugin_is_told_of_the_cluster(
    tmp_path: Path, cluster: Mapping[str, Any], told: Mapping[str, Any]
) -> None:
    """That of client-go: no file names, no extensions but its own."""
    (tmp_path / "ca.crt").write_bytes(PEM)
    config = written(tmp_path / "config", document(cluster, {"exec": {"command": "login", "provideClusterInfo": True}}))
    plugin = read_kubeconfig([config]).plugin
    assert plugin is not None
    assert plugin.cluster == {"server": "https://api:6443/", **told}


def test_an_authority_that_a_plugin_cannot_be_told_of(tmp_path: Path) -> None:
    cluster, exec_ = {"certificate-authority": "none"}, {"command": "login", "provideClusterInfo": True}
    with pytest.raises(FileNotFoundError):
        read_kubeconfig([written(tmp_path / "config", document(cluster, {"exec": exec_}))])
    exec_["provideClusterInfo"] = False
    assert read_kubeconfig([written(tmp_path / "config", document(cluster, {"exec": exec_}))]).ca == tmp_path / "none"


def test_several_files_are_one_and_the_first_wins(tmp_path: Path) -> None:
    first = written(tmp_path / "a/config", {"users": [{"name": "u", "user": {"tokenFile": "mine"}}]})
    second = written(tmp_path / "b/config", document({"certificate-authority": "ca"}, {"token": "theirs"}))
    found = find({"KUBECONFIG": f"{first}:{tmp_path / 'none'}:{second}:"})
    assert (found.token, found.token_file, found.ca) == ("", tmp_path / "a/mine", tmp_path / "b/ca")
    assert set(found.watched_files) >= {first, second, tmp_path / "a/mine", tmp_path / "b/ca"}


def test_the_order_in_which_files_are_looked_for(tmp_path: Path) -> None:
    named = written(tmp_path / "named", document({"server": "https://named"}, {}))
    environ_file = written(tmp_path / "environ", document({"server": "https://environ"}, {}))
    home = written(tmp_path / ".kube/config", document({"server": "https://home"}, {}))
    environ = {
        "KUBECONFIG": str(environ_file),
        "HOME": str(tmp_path),
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
    }
    assert find(environ, str(named)).server == "https://named"
    assert find(environ).server == "https://environ"
    del environ["KUBECONFIG"]
    assert find(environ).server == "https://home"
    home.unlink()
    assert find(environ).server == "https://10.0.0.1:443"
    with pytest.raises(KubeconfigError, match="not in a pod"):
        find({})


def test_a_pod(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    expected = RESTConfig("https://[fd00::1]:443", ca=tmp_path / "ca.crt", token_file=tmp_path / "token")
    assert in_cluster(environ, tmp_path) == expected
    (tmp_path / "namespace").write_text("koordinator-system\n")
    assert in_cluster(environ, tmp_path).namespace == "koordinator-system"


@pytest.mark.parametrize("missing", ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"])
def test_no_pod(missing: str) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    del environ[missing]
    with pytest.raises(KubeconfigError):
        in_cluster(environ)
