"""The rules file: read, checked as a whole, swapped at once; the last good one stays when a new one is bad.

``spec`` has NodeSLO's shape and is laid over the built-in defaults; ``node`` is this node's own section. Invariant:
``current`` is always usable: before any file, and without one, it is the built-in defaults. What is wrong is kept as
``warnings`` (file, path, value) for koordctl, logged and counted, until a good load.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from koord.model import slo, slo_defaults
from koord.model.schema import SchemaError
from koord.service.config import ConfigError, read_yaml
from qosd.hooks.rules import HostFacts, NodeRules, Rules
from qosd.metrics import Metrics
from qosd.policy import nodefile

_SECTIONS = ("spec", "node")
_IGNORED = ("apiVersion", "kind", "metadata", "status")  # of a pasted NodeSLO object
_log = logging.getLogger(__name__)


class InForce(Protocol):
    """Whoever knows the rules in force; the same object as long as they are the same."""

    @property
    def current(self) -> Rules: ...


class RulesSource:
    """The rules in force; ``load`` reads the file again. ``host_facts`` is asked at each load."""

    def __init__(self, file: Path, host_facts: Callable[[], HostFacts], metrics: Metrics) -> None:
        self._file, self._host_facts, self._metrics = file, host_facts, metrics
        self.current = Rules(slo_defaults.in_force(slo.NodeSLOSpec()), NodeRules(), host_facts())
        self._warnings: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the file as it is now; empty when it was taken whole."""
        return self._warnings

    def load(self) -> None:
        """Read the file and swap the rules; a bad file changes nothing but the warnings."""
        unknown: list[str] = []
        try:
            document = read_yaml(self._file)
            result = "loaded"
        except FileNotFoundError:
            document, result = {}, "defaults"
        except ConfigError as error:
            self._keep(error)
            return
        try:
            self.current = read(self._file, document, self._host_facts(), unknown.append)
        except ConfigError as error:
            self._keep(error)
            return
        self._warnings = tuple(f"{self._file}: {path}: no such key in NodeSLO, ignored" for path in unknown)
        for warning in self._warnings:
            _log.warning("%s", warning)
        self._metrics.rules_loads.labels(result).inc()
        _log.info("rules: %s", f"loaded {self._file}" if document else f"no {self._file}: built-in defaults")

    def _keep(self, error: ConfigError) -> None:
        self._warnings = (f"{error}; the last good rules stay",)
        self._metrics.rules_loads.labels("kept_last_good").inc()
        _log.error("%s", self._warnings[0])


def read(
    file: Path, document: Mapping[str, Any], host: HostFacts, unknown: Callable[[str], None] | None = None
) -> Rules:
    """Rules from a parsed rules file; ``unknown`` is told of keys under ``spec`` that NodeSLO lacks. ConfigError."""
    for key in document:
        if key not in (*_SECTIONS, *_IGNORED):
            raise ConfigError(file, str(key), None, f"is no section; there are {', '.join(_SECTIONS)}")
    try:
        spec = slo.decode_spec(document.get("spec") or {}, unknown=unknown)
        node = nodefile.read(document.get("node") or {})
    except SchemaError as error:
        raise ConfigError(file, error.path, None, f"{error.value} {error.why}") from error
    return Rules(slo_defaults.in_force(spec), node, host)
