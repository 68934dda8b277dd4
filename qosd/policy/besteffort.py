"""The limits of best-effort pods, kept over a restart: ``besteffort.json`` below the run directory.

A daemon that starts knows nothing of the load yet. Until every strategy has decided, best-effort pods keep the limits
of the last run, or a restart would give them the CPUs of a full node. A file that cannot be read is logged and counts
as none; the run directory is gone with the next boot, and so is the file.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from koord.service import wholefile
from qosd.model.besteffort import BestEffortScheduling

_MAX_BYTES = 1 << 20
_log = logging.getLogger(__name__)
_decoder = msgspec.json.Decoder(dict[str, BestEffortScheduling])


def load(file: Path) -> Mapping[str, BestEffortScheduling]:
    """Returns the limits by strategy; nothing if there is no such file, or none that can be used."""
    try:
        with file.open("rb") as opened:
            return _decoder.decode(opened.read(_MAX_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        _log.warning("%s: what was left to best-effort pods before the restart is not known: %s", file, error)
        return {}


def save(file: Path, best_effort: Mapping[str, BestEffortScheduling]) -> None:
    """Replaces the file by what lasts of ``best_effort``. An error is logged: it costs the next start its knowledge."""
    try:
        wholefile.write(msgspec.json.encode({name: each.lasting for name, each in best_effort.items()}), file)
    except OSError as error:
        _log.warning("%s: what is left to best-effort pods is lost with a restart: %s", file, error)
