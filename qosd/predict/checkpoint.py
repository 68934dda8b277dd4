"""Models on disk, so that a restart or a reboot does not cost a day of learning.

One JSON file with a version, replaced as a whole (``koord.service.wholefile``). Invariants:
the file is always the last complete one; a file of another version, or one that is no such file, is kept under
``.unreadable`` and the daemon starts without models; one bad model costs itself only. No pod is looked up when
models are read: those that get no samples expire by themselves.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from koord.model.histogram import Checkpoint, CheckpointError, DecayingHistogram
from koord.service import wholefile
from qosd.predict.bank import Bank, Model

VERSION = 1
ASIDE = ".unreadable"
"""Ends the name of a file that was moved aside."""

_log = logging.getLogger(__name__)


class CheckpointUnusable(Exception):
    """The file cannot be used as a whole; the message names it and says why."""


def encode(bank: Bank) -> bytes:
    """Returns the models as bytes.

    It may run beside the thread that the bank belongs to, which waits for one model at most. It is spelled piece by
    piece, so that Python's other threads run in between.
    """
    pieces = [f"{_json(key)}:{_json(dumped)}" for key in bank if (dumped := bank.read(key, _dump)) is not None]
    return f'{{"version":{VERSION},"models":{{{",".join(pieces)}}}}}'.encode()


def load(bank: Bank, file: Path) -> tuple[str, ...]:
    """Fills ``bank`` from ``file``. Returns what was left out, and why, a sentence each. A missing file is an empty
    one.

    Raises CheckpointUnusable, after the file was moved aside.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise CheckpointUnusable(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise _unusable(file, f"is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("version") != VERSION:
        found = document.get("version") if isinstance(document, dict) else None
        raise _unusable(file, f"version {found!r}, this daemon reads {VERSION}")
    problems = []
    for key, saved in sorted((document.get("models") or {}).items(), key=_updated):
        try:
            bank.put(key, _read(saved))
        except (CheckpointError, KeyError, TypeError, ValueError, AttributeError) as error:
            problems.append(f"{file}: model {key}: {type(error).__name__}: {error}; it starts from nothing")
    return tuple(problems)


def save(bank: Bank, file: Path) -> None:
    """Replaces ``file`` by the models; if that fails, the log says so."""
    try:
        wholefile.write(encode(bank), file)
    except OSError as error:
        _log.warning("the models are not kept: %s: %s", error.filename, error.strerror)


def _unusable(file: Path, why: str) -> CheckpointUnusable:
    aside = file.with_name(file.name + ASIDE)
    try:
        os.replace(file, aside)
    except OSError as error:
        return CheckpointUnusable(f"{file}: {why}; it cannot be moved aside: {error.strerror}")
    return CheckpointUnusable(f"{file}: {why}; kept as {aside.name}")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _updated(entry: tuple[str, Any]) -> float:
    """Returns the time of a model's newest sample; sorted by it, the newest models come last, and stay."""
    updated = entry[1].get("updated") if isinstance(entry[1], dict) else None
    return float(updated) if isinstance(updated, int | float) and math.isfinite(updated) else 0.0


def _dump(model: Model) -> Mapping[str, Any]:
    return {"cpu": _dump_one(model.cpu), "memory": _dump_one(model.memory), "updated": model.updated_s}


def _dump_one(histogram: DecayingHistogram) -> Mapping[str, Any]:
    saved = histogram.checkpoint()
    return {"reference": saved.reference_s, "weights": saved.weights, "total": saved.total}


def _read(saved: Mapping[str, Any]) -> Model:
    model, updated_s = Model(), float(saved["updated"])
    _restore(model.cpu, saved["cpu"], updated_s)
    _restore(model.memory, saved["memory"], updated_s)
    return model


def _restore(histogram: DecayingHistogram, saved: Mapping[str, Any], newest_s: float) -> None:
    weights = {int(bucket): int(weight) for bucket, weight in saved["weights"].items()}
    histogram.restore(Checkpoint(float(saved["reference"]), weights, float(saved["total"]), newest_s))
