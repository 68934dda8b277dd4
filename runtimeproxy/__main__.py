"""``koord-runtime-proxy``: the first instructions. Signals wait before anything that takes time is imported."""

from __future__ import annotations

import sys

from koord.service import startsignals


def main() -> int:
    startsignals.hold_back()
    from runtimeproxy import program  # noqa: PLC0415 - 60 ms

    return program.main()


if __name__ == "__main__":
    sys.exit(main())
