"""The unit tests on every Python that Koord supports: ``make test-pythons``. One that is not here is skipped.

Interpreters are found on PATH; with pyenv, ``PYENV_VERSION=3.11.7:3.12.1:3.13.0`` puts several there.
"""

from __future__ import annotations

import nox

nox.options.default_venv_backend = "venv"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


@nox.session(python=PYTHONS)
def unit(session: nox.Session) -> None:
    session.run("make", "test-unit", f"VENV={session.virtualenv.location}", external=True)
