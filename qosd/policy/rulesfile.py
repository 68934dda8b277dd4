"""The rules file as a layer of the policy: read and checked as a whole, and the last good one kept.

``spec`` has NodeSLO's shape; ``node`` is this node's own section. A rules file is a document with an age: the last good
one is kept on disk and stays while the file is bad, absent or being saved, across restarts too. Invariants: only a good
document changes the file's policy. A node that never had a file goes by the built-in defaults; where a file is or was
there and cannot be read, ``unknown`` says why.

Problems are kept as ``warnings`` (document, path, value), and loads are logged and counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from koord.model import slo, slo_defaults, slo_rules
from koord.model.problem import Bad, Problem
from koord.model.readable import shorten_list
from koord.model.schema import SchemaError, Unknown
from koord.service.config import ConfigError, parse_yaml, read_text
from qosd.metrics import Metrics
from qosd.model.policy import EffectivePolicy, HostFacts
from qosd.policy import nodefile
from qosd.policy.kept import MAX_BYTES, CopyUnusable, Keeper, PolicyDocument
from qosd.policy.overlay import NOT_SET, NodePolicy, bad_settings
from qosd.policy.provenance import Origin, Provenance

FROZEN = "no policy is known: every strategy is frozen, and what is set stays"
_SECTIONS = ("spec", "node")
_IGNORED = ("apiVersion", "kind", "metadata", "status")  # of a pasted NodeSLO object
_MOST_WARNINGS = 50
_STAYS = "the last good rules stay"
_log = logging.getLogger(__name__)


class RulesFile:
    """The file at ``path``; ``load`` reads it. ``kept`` remembers the last good document beyond this process."""

    def __init__(self, path: Path, metrics: Metrics, kept: Keeper | None, now_unix_s: Callable[[], float]) -> None:
        self._path, self._metrics, self._kept, self._now_unix_s = path, metrics, kept, now_unix_s
        self.provenance = Provenance(Origin.DEFAULTS, str(path))
        self.policy = NodePolicy(source=str(path))
        """What the last good document says; the same object until another one is good."""
        self.unknown = ""
        """Why the file's policy cannot be told; "" = it can."""
        self.warnings: tuple[str, ...] = ()
        """Wrong in the document as it is now; empty when it was taken whole."""
        self._unusable = ""
        self._recall()

    @property
    def is_known(self) -> bool:
        """Returns whether any document has been good."""
        return self.provenance.taken_unix_s is not None

    @property
    def copy_problem(self) -> str:
        """Returns why the last good document is not kept; "" = it is."""
        return self._kept.problem if self._kept is not None else ""

    def load(self) -> bool:
        """Reads the file. Returns whether it was taken; a bad one, an empty one and none change nothing but the
        warnings.
        """
        try:
            text = read_text(self._path, MAX_BYTES)
            if text.strip():
                self._take(PolicyDocument(text, str(self._path), self._now_unix_s()))
                return True
            self._absent("is empty; for the built-in defaults write 'spec: {}'")
        except FileNotFoundError:
            self._absent("is not there; for the built-in defaults write 'spec: {}' into it")
        except ConfigError as error:
            self._bad(str(error))
        return False

    def _recall(self) -> None:
        """Starts from what an earlier run kept, as if the file had not been read yet."""
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
        self._metrics.rules_loads["loaded"] += 1
        _log.info("rules: loaded %s", self._path)
        if self._kept is not None:
            self._kept.keep(document)

    def _adopt(self, document: PolicyDocument) -> None:
        """Goes by ``document`` from now on, and keeps warnings of what does not count. Raises ConfigError."""
        parsed, warnings = parse_yaml(document.source, document.text), list[str]()
        self.policy = _read(
            Path(document.source),
            parsed,
            lambda path: warnings.append(f"{document.source}: {path}: no such key in NodeSLO, ignored"),
            lambda problem: warnings.append(f"{document.source}: {problem}; {NOT_SET}"),
        )
        self.unknown, self.warnings = "", shortened(document.source, warnings)

    def _absent(self, why: str) -> None:
        if self.provenance.origin is Origin.DEFAULTS and not self._unusable:
            self.warnings = ()
            self._metrics.rules_loads["defaults"] += 1
            _log.info("rules: no %s: built-in defaults", self._path)
        else:
            self._bad(f"{self._path}: {why}")

    def _bad(self, problem: str) -> None:
        """Keeps the last good document; if there never was one, the policy is unknown."""
        if self.is_known:
            self.provenance = replace(self.provenance, origin=Origin.LAST_GOOD, problem=problem)
        else:
            self.unknown = "; ".join(part for part in (problem, self._unusable) if part)
            self.provenance = Provenance(Origin.UNKNOWN, str(self._path), problem=self.unknown)
        warning = f"{problem}; {_STAYS if self.is_known else FROZEN}"
        self.warnings = (warning,) if self.is_known or not self._unusable else (warning, self._unusable)
        self._metrics.rules_loads["kept_last_good" if self.is_known else "unknown"] += 1
        _log.error("%s", warning)


def read(
    file: Path,
    document: Mapping[str, Any],
    host: HostFacts,
    unknown: Unknown | None = None,
    bad: Bad | None = None,
) -> EffectivePolicy:
    """Returns the policy of a parsed rules file alone. Under ``spec``, ``unknown`` is told of keys that NodeSLO lacks,
    and ``bad`` of leaves that are wrong and of unknown feature gates, which then count as not set. Raises ConfigError.
    """
    stated = _read(file, document, unknown, bad)
    return EffectivePolicy(slo_defaults.in_force(stated.spec), stated.node, host, bad_settings=stated.bad_settings)


def _read(file: Path, document: Mapping[str, Any], unknown: Unknown | None, bad: Bad | None) -> NodePolicy:
    """Returns what the document itself says."""
    problems: list[Problem] = []

    def told(problem: Problem) -> None:
        if bad is None:
            raise SchemaError.of(problem)
        problems.append(problem)
        bad(problem)

    for key in document:
        if key not in (*_SECTIONS, *_IGNORED):
            raise ConfigError(file, str(key), None, f"is no section; there are {', '.join(_SECTIONS)}")
    try:
        spec = slo.decode_spec(document.get("spec") or {}, unknown=unknown, bad=told)
        spec = slo_rules.checked(spec, bad=told)
        node = nodefile.read(document.get("node") or {}, bad)
    except SchemaError as error:
        raise ConfigError(file, error.path, None, error.problem.message) from error
    return NodePolicy(spec, node, str(file), bad_settings=bad_settings(problems))


def shortened(source: str, warnings: Sequence[str]) -> tuple[str, ...]:
    """Returns the first of ``warnings``, and how many more there are."""
    return shorten_list(warnings, _MOST_WARNINGS, prefix=f"{source}: ")
