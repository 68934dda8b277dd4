"""helm as a user of the cluster runs it: its own directories, nothing of the home directory's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import yaml

from integration import build
from integration.cluster.api import Object
from integration.harness.processes import HarnessError

CHART = Path(__file__).parents[2] / "charts" / "koordinator"
RELEASE = "koordinator"
COMMAND_S = 300.0


class Helm:
    """Runs ``program`` with one kubeconfig; what helm keeps lies below ``directory``."""

    def __init__(self, program: Path, kubeconfig: Path, directory: Path) -> None:
        self.program = program
        places = {f"HELM_{name}_HOME": str(directory / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        self._environment = {**os.environ, **places, "KUBECONFIG": str(kubeconfig)}

    def __call__(self, *arguments: str) -> str:
        """Run a command and return its output; if it fails, HarnessError with its messages."""
        argv = [str(self.program), *arguments]
        done = subprocess.run(
            argv, env=self._environment, check=False, capture_output=True, text=True, timeout=COMMAND_S
        )
        if done.returncode != 0:
            raise HarnessError(f"{' '.join(argv)}: {done.returncode}: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """The same, without waiting."""
        argv = [str(self.program), *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, env=self._environment, stdout=pipe, stderr=pipe, text=True)


def template(helm: Helm, *arguments: str) -> str:
    """What helm would apply to a cluster of the release that is built here, or of another ``--kube-version``."""
    return helm("template", RELEASE, str(CHART), "--kube-version", build.kubernetes_version(), *arguments)


def documents(text: str) -> dict[tuple[str, str], Object]:
    """By kind and name."""
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each}
