"""What is said of the exceptions by which a program ends."""

from __future__ import annotations

import logging

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


@pytest.mark.parametrize(
    ("raised", "logged", "left"),
    [
        (None, [], None),
        (OSError("one"), ["one"], SystemExit),
        (ExceptionGroup("o", [ExceptionGroup("i", [OSError("one")]), ValueError("two")]), ["one", "two"], SystemExit),
        (KeyError("other"), [], KeyError),
        (ExceptionGroup("o", [OSError("one"), KeyError("other")]), ["one"], ExceptionGroup),
        (KeyboardInterrupt(), [], KeyboardInterrupt),
    ],
    ids=["nothing", "one", "groups", "another kind", "both", "a signal"],
)
def test_a_program_ends_with_a_sentence_of_each(
    raised: BaseException | None, logged: list[str], left: type[BaseException] | None, caplog: pytest.LogCaptureFixture
) -> None:
    def end() -> None:
        with failures.ending(logging.getLogger("program"), OSError, ValueError):
            if raised is not None:
                raise raised

    if left is None:
        end()
    else:
        with pytest.raises(left) as ended:
            end()
        assert not isinstance(ended.value, SystemExit) or ended.value.code == 1
    assert caplog.messages == logged
