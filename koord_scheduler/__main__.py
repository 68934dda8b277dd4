"""``koord-scheduler``: the first instructions. Signals wait before anything that takes time is imported."""

from __future__ import annotations

from koord.service import startsignals


def main() -> None:
    """The console script."""
    startsignals.hold_back()
    from koord_scheduler import program  # noqa: PLC0415

    program.main()


if __name__ == "__main__":
    main()
