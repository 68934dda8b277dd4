"""Runs tests in guests: ``python -m integration.guest [pytest's arguments]``.

An emulated guest hangs now and then, before anything of ours runs in it (``Guest.start`` tells) and also later. What
failed by that alone (``GuestHung``) runs once more, in new guests, and that is said; a test that fails otherwise, or
whose guest hangs again, has failed.
"""

from __future__ import annotations

import subprocess
import sys

HUNG = 75  # EX_TEMPFAIL; pytest's own statuses end at 5


def main(arguments: list[str]) -> int:
    argv = [sys.executable, "-m", "pytest", *arguments]
    status = subprocess.run(argv, check=False).returncode
    if status != HUNG:
        return status
    print("a guest hung: what failed by that runs once more", flush=True)
    return subprocess.run([*argv, "--last-failed"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
