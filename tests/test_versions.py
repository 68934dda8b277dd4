"""Every program says which version it is: an operator compares that before and after an upgrade."""

from __future__ import annotations

import subprocess
import sys

import pytest

import koord


@pytest.mark.parametrize(
    ("module", "program"),
    [("koordctl", "koordctl"), ("qosd", "koord-qosd"), ("runtimeproxy", "koord-runtime-proxy")],
)
def test_a_program_says_its_version(module: str, program: str) -> None:
    said = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == f"{program} {koord.__version__}\n"
