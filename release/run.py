"""Runs the programs that the builders use, and says which one failed with what."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


class BuildError(Exception):
    """Nothing usable was built. The text says what is missing or which program failed."""


def run(argv: Sequence[str | Path], environ: Mapping[str, str] = os.environ, directory: Path | None = None) -> str:
    """Runs ``argv``, and returns its standard output. Raises BuildError, with its last lines, if it fails."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(words, env=dict(environ), cwd=directory, check=False, capture_output=True, text=True)
    except OSError as error:
        raise BuildError(f"{words[0]}: {error.strerror}") from error
    if done.returncode != 0:
        said = "\n".join((done.stderr or done.stdout).splitlines()[-20:])
        raise BuildError(f"{' '.join(words)} ended with {done.returncode}\n{said}")
    return done.stdout


def python(version: str) -> str:
    """Returns a Python of exactly the minor ``version``, such as "3.11". Raises BuildError if there is none."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    found = shutil.which(f"python{version}")
    if found is None:
        raise BuildError(f"python{version} is needed: byte code is made by the Python that will run it")
    return found
