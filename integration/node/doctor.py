"""What ``koordctl doctor`` finds beside a daemon of a test's own, on this very machine."""

from __future__ import annotations

import json
import subprocess
import sys

from integration.harness.processes import HarnessError
from integration.node.daemon import ASK_S, Daemon

FINE, SOMETHING_FAILS = 0, 4


def findings(daemon: Daemon) -> dict[str, str]:
    """Status and sentence by check: ``fail: kubelet says …``. Raises HarnessError."""
    argv = [sys.executable, "-m", "koordctl", "doctor", "-o", "json", "--socket", str(daemon.socket)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=ASK_S)
    if done.returncode not in (FINE, SOMETHING_FAILS):
        raise HarnessError(f"koordctl doctor: {done.returncode}: {done.stderr}{done.stdout}")
    return {one["check"]: f"{one['status']}: {one['sentence']}" for one in json.loads(done.stdout)["findings"]}
