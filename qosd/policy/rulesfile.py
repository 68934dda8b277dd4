"""The policy in force: the rules file, read and checked as a whole, and over it what the cluster says.

``spec`` has NodeSLO's shape and is laid over the built-in defaults; ``node`` is this node's own section. Policy is a
document with an age: what was good once is kept on disk and stays in force while the file is bad, absent or being
saved, across restarts too. The cluster's NodeSLO and Node come over the file in one place (``compose``), each document
with its own last good one (``clusterpolicy``).

Invariants: nothing that a file does, but a good document, changes what is in force. ``current`` is another object only
when it says something else, and its ``slo`` and ``host`` likewise. A node that never had a file, and has no cluster,
has the built-in defaults; where a policy is or was there and nobody can tell it, ``current`` says so
(``EffectivePolicy.policy_unknown``), and then nothing is decided and nothing released.

What is wrong is kept as ``warnings`` (document, path, value) for koordctl, logged and counted, until it is right; with
them stands what the policy in force asks for and nobody does on this node (``sloeffects``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from koord.model import featuregates, slo, slo_defaults, slo_rules
from koord.model.excerpt import few
from koord.model.featuregates import NO_SETTINGS, Settings
from koord.model.schema import Bad, SchemaError, Unknown
from koord.service.config import ConfigError, parse_yaml, read_text
from qosd.metrics import Metrics
from qosd.model.policy import EffectivePolicy, HostFacts
from qosd.policy import nodefile, provenance, sloeffects
from qosd.policy.clusterpolicy import ClusterPolicy
from qosd.policy.composition import NOT_SET, Stated, bad_settings, together
from qosd.policy.kept import MAX_BYTES, CopyUnusable, Kept, PolicyDocument
from qosd.policy.provenance import Origin, Provenance

FILE = "rules file"
"""The name of the lowest layer."""
_SECTIONS = ("spec", "node")
_IGNORED = ("apiVersion", "kind", "metadata", "status")  # of a pasted NodeSLO object
_MOST_WARNINGS = 50
_STAYS = "the last good rules stay"
_FROZEN = "no policy is known: every strategy is frozen, and what is set stays"
_log = logging.getLogger(__name__)


class InForce(Protocol):
    """Whoever knows the rules in force; the same object as long as they are the same."""

    @property
    def current(self) -> EffectivePolicy: ...


class RulesSource:
    """The rules in force; ``load`` reads the file. ``kept`` remembers the last good document beyond this process.

    ``gate_flags``: what the command line says of feature gates. ``cluster``: the layers over the file; whoever feeds it
    calls ``recompose`` when it has changed.
    """

    def __init__(
        self,
        file: Path,
        host_facts: Callable[[], HostFacts],
        metrics: Metrics,
        kept: Kept | None = None,
        now_unix_s: Callable[[], float] = time.time,
        gate_flags: Settings = NO_SETTINGS,
        cluster: ClusterPolicy | None = None,
    ) -> None:
        self._file, self._host_facts, self._metrics = file, host_facts, metrics
        self._kept, self._now_unix_s, self._gate_flags = kept, now_unix_s, gate_flags
        self._cluster = cluster or ClusterPolicy(lambda: None)
        self._host = host_facts()
        self.current = EffectivePolicy(host=self._host, gate_flags=gate_flags)
        self.provenance = Provenance(Origin.DEFAULTS, str(file))
        """Of the file."""
        self._by_file = self._stated = Stated(source=str(file))
        self._file_unknown = self._cluster_unknown = ""
        self._file_warnings: tuple[str, ...] = ()
        self._layer_warnings: tuple[str, ...] = ()
        self._told: frozenset[str] = frozenset()
        self._unusable = ""
        self._recall()
        self._compose()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the documents as they are now and with the copies, and what of the policy in force has no
        effect by what is known of this node now; empty when all was taken whole and kept."""
        away = f"{self._cluster_unknown}; {_FROZEN}" if self._cluster_unknown else self._cluster.outage
        problem = self._kept.problem if self._kept is not None else ""
        policy = self.current
        gates = (*featuregates.without_effect(policy.gate_flags, policy.node.features), policy.unused_ratio)
        layers = (*self._cluster.warnings, *self._layer_warnings, away)
        found = (*self._file_warnings, *layers, *self._idle(), *gates, problem)
        return tuple(filter(None, found))

    @property
    def layers(self) -> Mapping[str, Provenance]:
        """Of the file and what is over it, the lowest first; none without a cluster, when the file is all there is."""
        cluster = self._cluster.layers
        return {FILE: self.provenance, **cluster} if cluster else {}

    @property
    def overall(self) -> Provenance:
        """The provenance of the policy in force as a whole."""
        layers = self.layers
        if not layers:
            return self.provenance
        unknown = self.current.policy_unknown
        return Provenance(Origin.UNKNOWN, "", problem=unknown) if unknown else provenance.overall(layers.values())

    def load(self) -> None:
        """Read the file and swap the rules; a bad file, an empty one and none change nothing but the warnings."""
        try:
            text = read_text(self._file, MAX_BYTES)
            if text.strip():
                self._take(PolicyDocument(text, str(self._file), self._now_unix_s()))
            else:
                self._absent("is empty; for the built-in defaults write 'spec: {}'")
        except FileNotFoundError:
            self._absent("is not there; for the built-in defaults write 'spec: {}' into it")
        except ConfigError as error:
            self._bad(str(error))

    def look_at_host(self) -> bool:
        """Look up the host's facts again; whether that changed the rules. The file is not read."""
        return self._look() and self._compose()

    def recompose(self) -> bool:
        """The cluster says something else; whether that changed the rules."""
        has_changed = self._compose()
        self._tell()
        return has_changed

    def _look(self) -> bool:
        host = self._host_facts()
        changed = host != self._host
        if changed:
            self._host = host
        return changed

    def _compose(self) -> bool:
        """Make the rules of all that is known; has that changed them?"""
        has_file = self.provenance.taken_unix_s is not None
        self._cluster_unknown = self._cluster.unknown(has_file)
        unknown = "; ".join(filter(None, (self._file_unknown, self._cluster_unknown)))
        warnings: list[str] = []
        self._stated = Stated() if unknown else together(self._by_file, self._cluster.stated, warnings.append)
        self._layer_warnings = tuple(warnings)
        spec = self._stated.spec if unknown else slo_defaults.in_force(self._stated.spec)
        before = self.current
        spec = before.slo if spec == before.slo else spec
        stated = self._stated
        policy = EffectivePolicy(
            spec, stated.node, self._host, unknown, self._gate_flags, stated.slo_generation, stated.bad_settings
        )
        self.current = before if policy == before else policy
        return self.current is not before

    def _recall(self) -> None:
        """Start from what an earlier run kept, as if the file had not been read yet."""
        try:
            document = self._kept.recall() if self._kept is not None else None
            if document is not None:
                self._adopt(document)
                why = "the file has not been read yet"
                self.provenance = Provenance(Origin.LAST_GOOD, document.source, document.taken_unix_s, why)
        except (CopyUnusable, ConfigError) as error:
            self._unusable = f"the kept policy counts as none: {error}"
            _log.warning("%s", self._unusable)

    def _take(self, document: PolicyDocument) -> None:
        self._adopt(document)
        self.provenance = Provenance(Origin.SOURCE, document.source, document.taken_unix_s)
        self._compose()
        self._tell()
        self._metrics.rules_loads["loaded"] += 1
        _log.info("rules: loaded %s", self._file)
        if self._kept is not None:
            self._kept.keep(document)

    def _adopt(self, document: PolicyDocument) -> None:
        """Go by ``document`` from now on, and keep what of it does not count. Raises ConfigError."""
        parsed, warnings = parse_yaml(document.source, document.text), list[str]()
        self._by_file = _read(
            Path(document.source),
            parsed,
            lambda path: warnings.append(f"{document.source}: {path}: no such key in NodeSLO, ignored"),
            lambda error: warnings.append(f"{document.source}: {error}; {NOT_SET}"),
        )
        self._file_unknown, self._file_warnings = "", _few(document.source, warnings)
        self._look()

    def _idle(self) -> tuple[str, ...]:
        """What the policy in force asks for and nobody does."""
        source = self._stated.source
        idle = [f"{source}: {sentence}" for sentence in sloeffects.without_effect(self._stated.spec, self.current)]
        return _few(source, idle)

    def _tell(self) -> None:
        """Log each warning once, as long as it holds."""
        warnings = self.warnings
        for warning in warnings:
            if warning not in self._told:
                _log.warning("%s", warning)
        self._told = frozenset(warnings)

    def _absent(self, why: str) -> None:
        if self.provenance.origin is Origin.DEFAULTS and not self._unusable:
            self._file_warnings = ()
            self._metrics.rules_loads["defaults"] += 1
            _log.info("rules: no %s: built-in defaults", self._file)
        else:
            self._bad(f"{self._file}: {why}")

    def _bad(self, problem: str) -> None:
        """What is in force stays; where nothing ever was, nobody knows what shall be."""
        is_known = self.provenance.taken_unix_s is not None
        if is_known:
            self.provenance = replace(self.provenance, origin=Origin.LAST_GOOD, problem=problem)
        else:
            self._file_unknown = "; ".join(part for part in (problem, self._unusable) if part)
            self.provenance = Provenance(Origin.UNKNOWN, str(self._file), problem=self._file_unknown)
            self._look()
            self._compose()
        warning = f"{problem}; {_STAYS if is_known else _FROZEN}"
        self._file_warnings = (warning,) if is_known or not self._unusable else (warning, self._unusable)
        self._metrics.rules_loads["kept_last_good" if is_known else "unknown"] += 1
        _log.error("%s", warning)


def read(
    file: Path,
    document: Mapping[str, Any],
    host: HostFacts,
    unknown: Unknown | None = None,
    bad: Bad | None = None,
) -> EffectivePolicy:
    """The policy of a parsed rules file alone. Under ``spec``, ``unknown`` is told of keys that NodeSLO lacks, and
    ``bad`` of leaves that are wrong and of unknown feature gates, which then count as not set. Raises ConfigError.
    """
    stated = _read(file, document, unknown, bad)
    return EffectivePolicy(slo_defaults.in_force(stated.spec), stated.node, host, bad_settings=stated.bad_settings)


def _read(file: Path, document: Mapping[str, Any], unknown: Unknown | None, bad: Bad | None) -> Stated:
    """What the document says itself."""
    errors: list[SchemaError] = []

    def told(error: SchemaError) -> None:
        if bad is None:
            raise error
        errors.append(error)
        bad(error)

    for key in document:
        if key not in (*_SECTIONS, *_IGNORED):
            raise ConfigError(file, str(key), None, f"is no section; there are {', '.join(_SECTIONS)}")
    try:
        spec = slo.decode_spec(document.get("spec") or {}, unknown=unknown, bad=told)
        spec = slo_rules.checked(spec, bad=told)
        node = nodefile.read(document.get("node") or {}, bad)
    except SchemaError as error:
        raise ConfigError(file, error.path, None, f"{error.value} {error.why}") from error
    return Stated(spec, node, str(file), bad_settings=bad_settings(errors))


def _few(source: str, warnings: Sequence[str]) -> tuple[str, ...]:
    return few(warnings, _MOST_WARNINGS, prefix=f"{source}: ")
