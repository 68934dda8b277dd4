"""Upstream's KubeSchedulerConfiguration: what ``--config FILE`` says, as a plain value.

Nothing in the file is passed over in silence. What cannot be read or followed is an error, and all errors are found at
once, each with its path and value. What is right and makes no difference here is a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec

from koord.kube.lease import Timing
from koord.model.core import Slim
from koord.model.problem import Problem
from koord.scheduling.queuedpod import BackoffTimes
from koord.service import optionvalues
from koord.service.config import ConfigError, parse_yaml, read_text
from koord_scheduler import extendersettings, profiles
from koord_scheduler.documentreader import DocumentReader
from koord_scheduler.extendersettings import ExtenderSettings
from koord_scheduler.options import NAME
from koord_scheduler.pluginargs import API_VERSION, Percent
from koord_scheduler.profiles import ALL_NODES, Profile

KIND = "KubeSchedulerConfiguration"
_Seconds = Annotated[int, msgspec.Meta(ge=1, le=86_400)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_LEASES = "leases"


class ConfigurationError(Exception):
    """The text has a line for each problem."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(f"{file}: {problem}" for problem in problems))


@dataclass(frozen=True)
class Configuration:
    """``options``: by the fields of `Options`, what the command line wins over. ``lease``: the name of the Lease.
    ``notes``: what has no effect; ``missing``: plugins that the file names and that there are not yet.
    """

    profiles: tuple[Profile, ...] = (Profile(),)
    extenders: tuple[ExtenderSettings, ...] = ()
    backoff: BackoffTimes = field(default_factory=BackoffTimes)
    lease: str = NAME
    options: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class ClientConnection(Slim, frozen=True):
    kubeconfig: str | None = None
    accept_content_types: str | None = None
    content_type: str | None = None
    qps: Annotated[float, msgspec.Meta(ge=0)] | None = None
    burst: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None


class LeaderElection(Slim, frozen=True):
    leader_elect: bool | None = None
    lease_duration: str | None = None
    renew_deadline: str | None = None
    retry_period: str | None = None
    resource_lock: str | None = None
    resource_name: str | None = None
    resource_namespace: str | None = None


class ConfigurationDocument(Slim, frozen=True):
    api_version: str | None = None
    kind: str | None = None
    parallelism: _Count | None = None
    leader_election: Any = None
    client_connection: Any = None
    enable_profiling: bool | None = None
    enable_contention_profiling: bool | None = None
    percentage_of_nodes_to_score: Percent | None = None
    pod_initial_backoff_seconds: _Seconds | None = None
    pod_max_backoff_seconds: _Seconds | None = None
    profiles: Any = None
    extenders: Any = None
    delay_cache_until_active: bool | None = None


def read(file: Path) -> Configuration:
    """Raises ConfigurationError, also for a file that does not exist."""
    try:
        return parse(read_text(file), str(file))
    except FileNotFoundError as error:
        raise ConfigurationError(str(file), [Problem("", "does not exist")]) from error
    except ConfigError as error:
        raise ConfigurationError(str(file), [Problem(error.path, error.why)]) from error


def parse(text: str, file: str) -> Configuration:
    """Returns what the text of ``file`` says, YAML or JSON. Raises ConfigurationError or ConfigError."""
    reader = DocumentReader()
    document = reader.read(ConfigurationDocument, parse_yaml(file, text), "")
    for key, said, wanted in (("apiVersion", document.api_version, API_VERSION), ("kind", document.kind, KIND)):
        if said != wanted:
            reader.wrong(key, said, f"is not {wanted}")
    _note(document, reader)
    connection = _connection(document.client_connection, "clientConnection", reader)
    election, lease = _election(document.leader_election, "leaderElection", reader)
    backoff = _backoff(document, reader)
    found = profiles.read(document.profiles, "profiles", reader)
    asked, ignored = extendersettings.read(document.extenders, "extenders", reader)
    if reader.problems:
        raise ConfigurationError(file, reader.problems)
    options = {**connection, **election}
    found = tuple([profiles.without(ignored, each) for each in found])
    return Configuration(found, asked, backoff, lease, options, tuple(reader.notes), tuple(reader.missing))


def _note(document: ConfigurationDocument, reader: DocumentReader) -> None:
    at_once = f"{ALL_NODES} at once"
    for path, value, why in (
        ("parallelism", document.parallelism, at_once),
        ("percentageOfNodesToScore", document.percentage_of_nodes_to_score, ALL_NODES),
        ("enableProfiling", document.enable_profiling or None, "no profile is served"),
        ("enableContentionProfiling", document.enable_contention_profiling or None, "no profile is served"),
        ("delayCacheUntilActive", document.delay_cache_until_active or None, "every replica follows the cluster"),
    ):
        reader.no_effect(path, value, why)


def _connection(document: object, path: str, reader: DocumentReader) -> dict[str, object]:
    """0 and "" are not said, as in Go."""
    said = reader.read(ClientConnection, document, path)
    for key, value in (("contentType", said.content_type), ("acceptContentTypes", said.accept_content_types)):
        reader.no_effect(f"{path}.{key}", value or None, "requests and answers are JSON")
    options = {"kubeconfig": said.kubeconfig, "rest_config_qps": said.qps, "rest_config_burst": said.burst}
    return {name: value for name, value in options.items() if value}


def _election(document: object, path: str, reader: DocumentReader) -> tuple[dict[str, object], str]:
    """Returns the options, and the name of the Lease. Its times are our own: what is sent is bounded by them."""
    said, timing = reader.read(LeaderElection, document, path), Timing()
    for key, value, seconds in (
        ("leaseDuration", said.lease_duration, timing.lease_s),
        ("renewDeadline", said.renew_deadline, timing.renew_s),
        ("retryPeriod", said.retry_period, timing.retry_s),
    ):
        if value and _duration_s(value, f"{path}.{key}", reader) not in (None, seconds):
            reader.wrong(f"{path}.{key}", value, f"cannot be followed: it is always {seconds:g}s")
    if said.resource_lock not in (None, "", _LEASES):
        reader.wrong(f"{path}.resourceLock", said.resource_lock, f"is not {_LEASES}")
    options: dict[str, object] = {}
    if said.leader_elect is not None:
        options["enable_leader_election"] = said.leader_elect
    if said.resource_namespace:
        options["leader_election_namespace"] = said.resource_namespace
    return options, said.resource_name or NAME


def _duration_s(text: str, path: str, reader: DocumentReader) -> float | None:
    """None: it is none, which is told."""
    try:
        return optionvalues.duration_s(text)
    except ValueError as error:
        reader.wrong(path, text, f"is {error}")
        return None


def _backoff(document: ConfigurationDocument, reader: DocumentReader) -> BackoffTimes:
    default = BackoffTimes()
    first_s = document.pod_initial_backoff_seconds or default.first_s
    most_s = document.pod_max_backoff_seconds or default.most_s
    if most_s < first_s:
        reader.wrong("podMaxBackoffSeconds", most_s, f"is less than podInitialBackoffSeconds, which is {first_s}")
    return BackoffTimes(first_s, most_s)
