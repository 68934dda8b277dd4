"""Prediction as a part of the daemon: learns from every tick, predicts once a minute, keeps the models.

``observe`` runs in the node's thread, which neither spells a checkpoint nor waits for a disk: that is ``keep``'s.
Invariant: prediction goes on with a bad checkpoint, and the daemon says what it lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from koord.overcommit.amounts import ParsedAmounts
from qosd.model.snapshot import NodeSnapshot
from qosd.predict import checkpoint
from qosd.predict.bank import Bank
from qosd.predict.checkpoint import CheckpointUnusable
from qosd.predict.reclaimable import Amount, PredictionSettings, ProdPrediction, predict
from qosd.predict.trainer import Trainer

CHECKPOINT_EVERY_S = 600.0
NOT_STATED = ParsedAmounts()
_NANOSECONDS = 1_000_000_000
_log = logging.getLogger(__name__)


class Predictor:
    """``keep`` takes the models and stores them some time, in another thread."""

    def __init__(self, keep: Callable[[Bank], object], settings: PredictionSettings | None = None) -> None:
        self.bank = Bank()
        self._keep, self._settings = keep, settings or PredictionSettings()
        self._trainer = Trainer(self.bank)
        self._kept_ns: int | None = None
        self._newest: ProdPrediction | None = None

    @property
    def newest(self) -> ProdPrediction | None:
        """Returns the prediction of the last full minute."""
        return self._newest

    def load(self, file: Path) -> tuple[str, ...]:
        """Starts from the models in ``file``. Returns what was lost, a sentence each."""
        try:
            return checkpoint.load(self.bank, file)
        except CheckpointUnusable as error:
            return (str(error),)

    def observe(self, snapshot: NodeSnapshot, stated: ParsedAmounts = NOT_STATED) -> ProdPrediction | None:
        """Takes one tick. Returns the new prediction when a minute is full and the pods are known.

        ``stated``: see ``allocatable``.
        """
        if not self._trainer.observe(snapshot):
            return None
        now_s = snapshot.wall_ns / _NANOSECONDS
        if self._kept_ns is None or snapshot.monotonic_ns - self._kept_ns >= CHECKPOINT_EVERY_S * _NANOSECONDS:
            self._kept_ns = snapshot.monotonic_ns
            self._keep(self.bank)
        if not snapshot.knows_pods:
            return None
        self._newest = predict(self.bank, snapshot.pods, allocatable(snapshot, stated), now_s, self._settings)
        return self._newest


def allocatable(snapshot: NodeSnapshot, stated: ParsedAmounts = NOT_STATED) -> Amount:
    """Returns what the node has for pods: ``stated`` by its Node; else the part of the host that is not reserved."""
    cpu_milli, memory_bytes, _ = stated
    return Amount(
        float(snapshot.allocatable_cpu_milli if cpu_milli is None else cpu_milli),
        float(snapshot.policy.allocatable_memory_bytes if memory_bytes is None else memory_bytes),
    )
