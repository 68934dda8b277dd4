"""Makes Koord's own directories with the mode that the documentation says.

The units set ``UMask=0077``, which takes bits from the mode that mkdir(2) is given; so the mode is set afterwards.
Invariant: a directory that exists already keeps its mode and owner.
"""

from __future__ import annotations

import os

MODE = 0o755


def make_directories(path: str) -> None:
    """Makes ``path`` and its missing parents, mode 0755 under any umask. Raises OSError, also where a file is."""
    missing = []
    step = path
    while step and not os.path.isdir(step):
        missing.append(step)
        step = os.path.dirname(step.rstrip("/"))
    for directory in reversed(missing):
        try:
            os.mkdir(directory, MODE)
        except FileExistsError:  # a file, or another process was quicker
            if not os.path.isdir(directory):
                raise
        else:
            os.chmod(directory, MODE)
