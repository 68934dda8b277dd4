"""The rules file as the node's policy: read, checked as a whole, swapped at once; the last good one stays.

``spec`` has NodeSLO's shape and is laid over the built-in defaults; ``node`` is this node's own section. Policy is a
document with an age: what was good once is kept on disk and stays in force while the file is bad, absent or being
saved, across restarts too. Invariant: nothing that a file does, but a good document, changes what is in force. A node
that never had a file has the built-in defaults; where a policy is or was there and nobody can tell it, ``current``
says so (``Rules.policy_unknown``), and then nothing is decided and nothing released.

What is wrong is kept as ``warnings`` (file, path, value) for koordctl, logged and counted, until a good load; with them
stands what the policy in force asks for and nobody does on this node (``sloeffects``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from koord.model import slo, slo_defaults, slo_rules
from koord.model.featuregates import NO_SETTINGS, Settings
from koord.model.schema import Bad, SchemaError, Unknown
from koord.service.config import ConfigError, parse_yaml, read_text
from qosd.metrics import Metrics
from qosd.model.rules import HostFacts, NodeRules, Rules
from qosd.policy import nodefile, sloeffects
from qosd.policy.kept import MAX_BYTES, CopyUnusable, PolicyDocument
from qosd.policy.provenance import Origin, Provenance

_SECTIONS = ("spec", "node")
_IGNORED = ("apiVersion", "kind", "metadata", "status")  # of a pasted NodeSLO object
_MOST_WARNINGS = 50
_STAYS = "the last good rules stay"
_FROZEN = "no policy is known: every strategy is frozen, and what is set stays"
_log = logging.getLogger(__name__)


class InForce(Protocol):
    """Whoever knows the rules in force; the same object as long as they are the same."""

    @property
    def current(self) -> Rules: ...


class Kept(Protocol):
    """``qosd.policy.kept.Keeper``."""

    problem: str

    def recall(self) -> PolicyDocument | None: ...

    def keep(self, document: PolicyDocument) -> None: ...


class RulesSource:
    """The rules in force; ``load`` reads the file. ``kept`` remembers the last good document beyond this process.

    ``gate_flags``: what the command line says of feature gates.
    """

    def __init__(
        self,
        file: Path,
        host_facts: Callable[[], HostFacts],
        metrics: Metrics,
        kept: Kept | None = None,
        now_unix_s: Callable[[], float] = time.time,
        gate_flags: Settings = NO_SETTINGS,
    ) -> None:
        self._file, self._host_facts, self._metrics = file, host_facts, metrics
        self._kept, self._now_unix_s, self._gate_flags = kept, now_unix_s, gate_flags
        self.current = Rules(host=host_facts(), gate_flags=gate_flags)
        self.provenance = Provenance(Origin.DEFAULTS, str(file))
        self._stated = slo.NodeSLOSpec()
        self._warnings: tuple[str, ...] = ()
        self._unusable = ""
        self._recall()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the file as it is now and with the copy, and what of the policy in force has no effect by
        what is known of this node now; empty when it was taken whole and kept."""
        problem = self._kept.problem if self._kept is not None else ""
        return (*self._warnings, *self._idle(), *([problem] if problem else []))

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
        host = self._host_facts()
        changed = host != self.current.host
        if changed:
            self.current = replace(self.current, host=host)
        return changed

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
        for warning in self.warnings:
            _log.warning("%s", warning)
        self._metrics.rules_loads["loaded"] += 1
        _log.info("rules: loaded %s", self._file)
        if self._kept is not None:
            self._kept.keep(document)

    def _adopt(self, document: PolicyDocument) -> None:
        """Put the rules of ``document`` in force, and keep what of it does not count. Raises ConfigError."""
        parsed, warnings = parse_yaml(document.source, document.text), list[str]()
        stated, rules = _read(
            Path(document.source),
            parsed,
            self._host_facts(),
            lambda path: warnings.append(f"{document.source}: {path}: no such key in NodeSLO, ignored"),
            lambda error: warnings.append(f"{document.source}: {error}; it counts as not set"),
        )
        self._stated, self._warnings = stated, _most(document.source, warnings)
        self.current = replace(rules, gate_flags=self._gate_flags)

    def _idle(self) -> tuple[str, ...]:
        """What the policy in force asks for and nobody does."""
        source = self.provenance.source
        idle = [f"{source}: {sentence}" for sentence in sloeffects.without_effect(self._stated, self.current)]
        return _most(source, idle)

    def _absent(self, why: str) -> None:
        if self.provenance.origin is Origin.DEFAULTS and not self._unusable:
            self._warnings = ()
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
            why = "; ".join(part for part in (problem, self._unusable) if part)
            self.provenance = Provenance(Origin.UNKNOWN, str(self._file), problem=why)
            self._stated = slo.NodeSLOSpec()
            self.current = Rules(self._stated, NodeRules(), self._host_facts(), why, self._gate_flags)
        warning = f"{problem}; {_STAYS if is_known else _FROZEN}"
        self._warnings = (warning,) if is_known or not self._unusable else (warning, self._unusable)
        self._metrics.rules_loads["kept_last_good" if is_known else "unknown"] += 1
        _log.error("%s", warning)


def read(
    file: Path,
    document: Mapping[str, Any],
    host: HostFacts,
    unknown: Unknown | None = None,
    bad: Bad | None = None,
) -> Rules:
    """Rules from a parsed rules file. Under ``spec``, ``unknown`` is told of keys that NodeSLO lacks, and ``bad`` of
    leaves that are wrong and of unknown feature gates, which then count as not set. Raises ConfigError.
    """
    return _read(file, document, host, unknown, bad)[1]


def _read(
    file: Path, document: Mapping[str, Any], host: HostFacts, unknown: Unknown | None, bad: Bad | None
) -> tuple[slo.NodeSLOSpec, Rules]:
    """What the document says itself, and the rules that follow from it."""
    for key in document:
        if key not in (*_SECTIONS, *_IGNORED):
            raise ConfigError(file, str(key), None, f"is no section; there are {', '.join(_SECTIONS)}")
    try:
        spec = slo.decode_spec(document.get("spec") or {}, unknown=unknown, bad=bad)
        spec = slo_rules.checked(spec, bad=bad)
        node = nodefile.read(document.get("node") or {}, bad)
    except SchemaError as error:
        raise ConfigError(file, error.path, None, f"{error.value} {error.why}") from error
    return spec, Rules(slo_defaults.in_force(spec), node, host)


def _most(source: str, warnings: Sequence[str]) -> tuple[str, ...]:
    """``warnings``, or the first of them and how many more there are."""
    more = len(warnings) - _MOST_WARNINGS
    return (*warnings[:_MOST_WARNINGS], *([f"{source}: and {more} more"] if more > 0 else []))
