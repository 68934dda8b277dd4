"""``koord-qosd``: the first instructions. Signals wait before anything that takes time is imported."""

from __future__ import annotations

import sys

from koord.service import startsignals


def main() -> None:
    """The console script."""
    if sys.argv[1:2] == ["give-back"]:
        from qosd import giveback  # noqa: PLC0415

        sys.exit(giveback.main(sys.argv[2:]))
    startsignals.hold_back()
    from qosd import program  # noqa: PLC0415

    program.main()


if __name__ == "__main__":
    main()
