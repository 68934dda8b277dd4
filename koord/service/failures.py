"""What a program that ends by an exception says of it: the exceptions themselves, out of groups in groups."""

from __future__ import annotations

from collections.abc import Iterator


def each(error: BaseException) -> Iterator[BaseException]:
    """The exceptions of a group and of the groups in it, in their order; ``error`` alone if it is no group."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from each(inner)
    else:
        yield error
