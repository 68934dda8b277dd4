"""Making an image fails with one kind of error, whatever is missing."""

from __future__ import annotations

import pytest

from integration.build import BuildError
from integration.cluster.quickstart import images


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(BuildError, match=r"no-such-program cannot be run: .*No such file"):
        images._run(["no-such-program"])
