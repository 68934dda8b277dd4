"""How long the node tests run, from the environment: short in CI, long by ``make soak-node``."""

from __future__ import annotations

import os
import random

TICKS = int(os.environ.get("N", "200"))
MINUTES = float(os.environ.get("MINUTES", "1"))
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
