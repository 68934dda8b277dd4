"""kubectl as a user of the cluster runs it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from integration.harness.processes import HarnessError

COMMAND_S = 120.0


class Kubectl:
    """Runs ``program`` with one kubeconfig; its cache of discovery lies beside that file, not in the home directory."""

    def __init__(self, program: Path, kubeconfig: Path) -> None:
        self.program = program
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "KUBECACHEDIR": f"{kubeconfig}.cache"}

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """Run a command and return its output; if it fails, HarnessError with its messages."""
        argv = [str(self.program), *arguments]
        done = subprocess.run(
            argv, input=stdin, env=self._environment, check=False, capture_output=True, text=True, timeout=COMMAND_S
        )
        if done.returncode != 0:
            raise HarnessError(f"{' '.join(argv)}: {done.returncode}: {done.stderr.strip()[-2000:]}")
        return done.stdout
