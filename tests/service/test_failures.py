"""What is said of the exceptions by which a program ends."""

from __future__ import annotations

import pytest

from koord.service import failures

PORT, DISK, KEY = OSError("port"), OSError("disk"), KeyError("key")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PORT, [PORT]),
        (ExceptionGroup("", [PORT, KEY]), [PORT, KEY]),
        (ExceptionGroup("", [ExceptionGroup("", [ExceptionGroup("", [PORT]), DISK]), KEY]), [PORT, DISK, KEY]),
        (BaseExceptionGroup("", [SystemExit(), PORT]), [SystemExit, PORT]),
    ],
    ids=["no group", "group", "groups in groups", "not only Exceptions"],
)
def test_each(error: BaseException, said: list[object]) -> None:
    found = list(failures.each(error))
    assert len(found) == len(said)
    assert all(one is other or type(one) is other for one, other in zip(found, said, strict=True))
