"""Guides are read whole, and a walk through one does what a reader would do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from integration.cluster.quickstart import guide, walk
from integration.cluster.quickstart.guide import Command, File
from integration.cluster.quickstart.walk import Substitution, Walk, WalkError

DOCUMENT = """\
# A guide

Two commands, and a file:

```shell
# a comment
echo one   two
cat \\
  a.yaml
```

```text
key: 1
```

```yaml a.yaml
key: 1
```

```yaml
kind: Job
metadata:
  name: nightly
```
"""


def test_steps_are_commands_and_files_in_their_order() -> None:
    assert list(guide.steps(DOCUMENT)) == [
        Command("echo one two", line=5),
        Command("cat a.yaml", "key: 1\n", line=5),
        File("a.yaml", "key: 1\n"),
    ]


def test_objects_have_their_names() -> None:
    assert set(guide.objects(DOCUMENT)) == {"nightly"}


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("```bash\nls\n```\n", "line 1: a block of 'bash'"),
        ("text\n```shell\nls\n", "line 2: a block that is not closed"),
        ("```text\nout\n```\n", "line 1: an output without a command"),
    ],
)
def test_what_would_be_skipped_is_an_error(document: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        list(guide.steps(document))


@pytest.mark.parametrize(
    ("one", "other", "varies", "alike"),
    [
        ("koordlet-hm5lt  1/1  9s", "koordlet-x2vqz 1/1 2m10s", False, True),
        ("koordlet-hm5lt  1/1  9s", "koordlet-x2vqz 0/1 9s", False, False),
        ("koord-manager-7d9c8b6f5d-4xk2p 1/1", "koord-manager-5c6d7f8b9-zzzzz 1/1", False, True),
        ("koord-batch 5000", "koord-batch 5001", False, False),
        ("node-1 200m 3000", "node-1 87m 4112", True, True),
        ("node-1 200m", "node-1 <none>", True, False),
        ("node-1 2 9760", "node-1 2 8k", True, True),
        ("node-1 2 9760", "node-1 2 8k", False, False),
        ("node-1 2 15303412791", "node-1 2 14Gi", True, True),
        ("node-1 241m 1156143943", "node-1 2 1156143943", True, True),
        ("requests 400000m", "asks for 400000m", True, False),
    ],
)
def test_shapes(one: str, other: str, varies: bool, alike: bool) -> None:
    assert (walk.shape(one, varies) == walk.shape(other, varies)) is alike


def walker(directory: Path, *substitutions: Substitution) -> Walk:
    return Walk(directory, {"PATH": os.environ["PATH"]}, substitutions)


def test_a_walk_writes_files_and_runs_commands(tmp_path: Path) -> None:
    walking = walker(tmp_path, Substitution("cat a.yaml", ("cat b.yaml",), "another name"))
    (tmp_path / "b.yaml").write_text("key: 1\n")
    walking.through(DOCUMENT)
    assert [output for _, output in walking.printed] == ["one two\n", "key: 1\n"]
    assert (tmp_path / "a.yaml").read_text() == "key: 1\n" and walking.unused() == set()


def test_what_no_guide_has_is_unused(tmp_path: Path) -> None:
    assert walker(tmp_path, Substitution("ls", (), "")).unused() == {"ls"}


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("```shell\nexit 3\n```\n", "status 3"),
        ("```shell\necho two\n```\n```text\none\n```\n", "two"),
    ],
)
def test_a_guide_that_does_not_do_what_it_says(tmp_path: Path, document: str, says: str) -> None:
    with pytest.raises(WalkError, match=says):
        walker(tmp_path).through(document)


def test_outputs_take_the_place_of_those_before(tmp_path: Path) -> None:
    """The document that comes of a walk is the same where nothing else was printed."""
    document = DOCUMENT.replace("cat \\\n  a.yaml", "cat a.yaml")
    (tmp_path / "a.yaml").write_text("key: 1\n")
    walking = walker(tmp_path)
    walking.through(document)
    assert walk.with_outputs(document, walking.printed) == document
    command, _ = walking.printed[-1]
    assert "key: 2\nkey: 3\n```" in walk.with_outputs(document, [(command, "key: 2\nkey: 3\n")])
