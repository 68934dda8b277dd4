"""The last good policy: what stays in force through bad files, restarts and disks that fail, and what is told."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from koord.model.slo import NodeSLOSpec
from koord.service import wholefile
from qosd.metrics import Metrics
from qosd.model.policy import EffectivePolicy, HostFacts
from qosd.policy import kept
from qosd.policy.kept import CopyUnusable, Keeper, PolicyDocument
from qosd.policy.provenance import Origin
from qosd.policy.source import PolicySource
from tests.support.waiting import until

GOOD, BETTER = "node: {guaranteedAs: LSR}\n", "node: {guaranteedAs: LSR, beCPUManager: true}\n"
BAD = "node: {guaranteedAs: nobody}\n"
TAKEN_S = 1_700_000_000.0


class Disk(Keeper):
    """Keeps at once, in ``file``."""

    def __init__(self, file: Path) -> None:
        self._file, self.problem = file, ""

    def keep(self, document: PolicyDocument) -> None:
        wholefile.write(kept.encode(document), self._file)


class Node:
    """A rules file and a state directory; each ``start`` is a qosd that has just been started."""

    def __init__(self, root: Path) -> None:
        self.file, self.copy = root / "rules.yaml", root / "state" / "policy.yaml"

    def start(self, now_s: float = TAKEN_S) -> PolicySource:
        source = PolicySource(self.file, HostFacts, Metrics(), Disk(self.copy), lambda: now_s)
        source.load()
        return source

    def after(self, text: str) -> PolicySource:
        """Started with ``text`` as its file."""
        self.file.write_text(text)
        return self.start()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def is_good(policy: EffectivePolicy) -> bool:
    return policy.node.guaranteed_is_lsr and not policy.policy_unknown


def replace_by_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


SPOILT: dict[str, Callable[[Path], object]] = {
    "bad": lambda file: file.write_text(BAD),
    "no YAML": lambda file: file.write_text("node: {"),
    "removed": lambda file: file.unlink(),
    "truncated to nothing": lambda file: file.write_text(""),
    "blank": lambda file: file.write_text(" \n\n"),
    "too large": lambda file: file.write_text("#" * (kept.MAX_BYTES + 1)),
    "no text": lambda file: file.write_bytes(b"\xff"),
    "a directory": replace_by_directory,
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
class TestASourceThatSaysNothingGood:
    def test_leaves_the_last_good_policy_in_force(self, node: Node, spoil: Callable[[Path], object]) -> None:
        source = node.after(GOOD)
        before = source.current
        spoil(node.file)
        source.load()
        assert source.current is before
        assert source.file.provenance.origin is Origin.LAST_GOOD
        assert source.file.provenance.problem.startswith(f"{node.file}: ")
        assert source.warnings == (f"{source.file.provenance.problem}; the last good rules stay",)

    def test_does_so_after_a_restart_too(self, node: Node, spoil: Callable[[Path], object]) -> None:
        node.after(GOOD)
        spoil(node.file)
        source = node.start(TAKEN_S + 3600)
        assert is_good(source.current)
        assert source.file.provenance.origin is Origin.LAST_GOOD
        assert (source.file.provenance.source, source.file.provenance.age_s(TAKEN_S + 3600)) == (str(node.file), 3600)

    def test_is_over_with_the_next_good_document(self, node: Node, spoil: Callable[[Path], object]) -> None:
        node.after(GOOD)
        spoil(node.file)
        source = node.start()
        if node.file.is_dir():
            node.file.rmdir()
        node.file.write_text(BETTER)
        source.load()
        assert source.current.node.be_cpu_manager
        assert (source.file.provenance.origin, source.warnings) == (Origin.SOURCE, ())


def test_a_policy_with_a_bad_leaf_is_kept_like_any(node: Node) -> None:
    node.after("spec: {cpuBurstStrategy: {cpuBurstPercent: 0}}\n" + GOOD)
    node.file.unlink()
    assert is_good(node.start().current)


class TestANodeWithoutAFile:
    def test_has_the_built_in_defaults_and_no_complaint(self, node: Node) -> None:
        source = node.start()
        assert (source.current, source.warnings) == (EffectivePolicy(), ())
        assert source.file.provenance.origin is Origin.DEFAULTS
        assert not node.copy.exists()

    def test_still_has_them_after_a_restart(self, node: Node) -> None:
        node.start()
        assert node.start().file.provenance.origin is Origin.DEFAULTS

    def test_goes_back_to_them_by_a_policy_that_says_nothing(self, node: Node) -> None:
        source = node.after(GOOD)
        node.file.write_text("spec: {}\n")
        source.load()
        assert source.current == EffectivePolicy()
        assert node.start().current == EffectivePolicy()


class TestAPolicyThatNobodyCanTell:
    def test_is_unknown_and_not_the_defaults(self, node: Node) -> None:
        source = node.after(BAD)
        assert source.current.policy_unknown
        assert source.current.slo == NodeSLOSpec(), "nothing of it may be written"
        assert source.file.provenance.origin is Origin.UNKNOWN
        assert "no policy is known: every strategy is frozen" in source.warnings[0]

    def test_stays_unknown_when_the_bad_file_is_removed(self, node: Node) -> None:
        source = node.after(BAD)
        node.file.unlink()
        source.load()
        assert source.file.provenance.origin is Origin.UNKNOWN

    @pytest.mark.parametrize("spoil", [SPOILT["removed"], SPOILT["bad"]], ids=["removed", "bad"])
    def test_includes_a_damaged_copy_which_says_that_there_was_one(
        self, node: Node, spoil: Callable[[Path], object]
    ) -> None:
        node.after(GOOD)
        node.copy.write_bytes(node.copy.read_bytes()[:-3])
        spoil(node.file)
        for _ in range(2):  # the damaged copy is no less evidence after a restart
            source = node.start()
            assert source.current.policy_unknown
            assert any(f"{node.copy}: is damaged" in warning for warning in source.warnings)

    def test_is_known_with_the_first_good_document(self, node: Node) -> None:
        source = node.after(BAD)
        node.file.write_text(GOOD)
        source.load()
        assert is_good(source.current)
        assert is_good(node.start().current)


class TestTheCopy:
    def test_is_the_document_as_it_was_spelled(self, node: Node) -> None:
        node.after(GOOD + "# Größe: 100 %\n")
        assert kept.read(node.copy) == PolicyDocument(GOOD + "# Größe: 100 %\n", str(node.file), TAKEN_S)
        assert node.copy.stat().st_mode & 0o777 == 0o600

    @pytest.mark.parametrize(
        ("content", "why"),
        [
            (b"", "version None"),
            (b"node: {}\n", "version None"),
            (b"# koord policy nothing\nnode: {}\n", "is damaged"),
            (b"# koord policy []\nnode: {}\n", "is damaged"),
            (b'# koord policy {"version": 2}\nnode: {}\n', "version 2, this daemon reads 1"),
            (b'# koord policy {"version": 1}\nnode: {}\n', "is damaged: KeyError"),
            (b'# koord policy {"version": 1, "bytes": 9, "sha256": "x"}\nnode: {}\n', "is damaged: its text"),
            (b"\xff\xfe" * 9000, "version None"),
        ],
    )
    def test_that_is_none_is_told(self, tmp_path: Path, content: bytes, why: str) -> None:
        (tmp_path / "copy").write_bytes(content)
        with pytest.raises(CopyUnusable, match=why):
            kept.read(tmp_path / "copy")

    def test_every_damaged_byte_is_noticed(self, node: Node) -> None:
        node.after(GOOD)
        whole = node.copy.read_bytes()
        for index in range(whole.index(b"\n") + 1, len(whole)):
            node.copy.write_bytes(whole[:index] + bytes([whole[index] ^ 1]) + whole[index + 1 :])
            with pytest.raises(CopyUnusable):
                kept.read(node.copy)
        for length in range(len(whole)):
            node.copy.write_bytes(whole[:length])
            with pytest.raises(CopyUnusable):
                kept.read(node.copy)

    def test_that_others_may_write_is_not_believed(self, node: Node) -> None:
        node.after(GOOD)
        node.copy.chmod(0o622)
        with pytest.raises(CopyUnusable, match="may be written by others"):
            kept.read(node.copy)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
    def test_of_another_user_is_not_believed(self, node: Node) -> None:
        node.after(GOOD)
        os.chown(node.copy, 12345, 0)
        with pytest.raises(CopyUnusable, match="belongs to user 12345"):
            kept.read(node.copy)

    def test_that_is_a_directory_is_none(self, node: Node) -> None:
        node.copy.mkdir(parents=True)
        with pytest.raises(CopyUnusable, match="is no regular file"):
            kept.read(node.copy)

    def test_behind_a_symlink_is_not_followed(self, node: Node, tmp_path: Path) -> None:
        node.after(GOOD)
        node.copy.rename(tmp_path / "elsewhere")
        node.copy.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(CopyUnusable):
            kept.read(node.copy)


class Killed(BaseException):
    """The process ends here."""


class Failing:
    """A function of the system whose ``nth`` call from now on fails."""

    def __init__(self, real: Callable[..., Any], nth: int, fault: BaseException) -> None:
        self.real, self.left, self.fault = real, nth, fault

    def __call__(self, *args: Any, **named: Any) -> Any:
        self.left -= 1
        if self.left == -1:
            raise self.fault
        return self.real(*args, **named)


STEPS = ("unlink", "open", "fsync", "replace", "close")


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), Killed()], ids=["ENOSPC", "kill"])
@pytest.mark.parametrize("step", STEPS)
def test_a_write_that_ends_at_any_step_leaves_the_old_or_the_new_copy_whole(
    node: Node, monkeypatch: pytest.MonkeyPatch, step: str, fault: BaseException
) -> None:
    old, new = (PolicyDocument(text, str(node.file), TAKEN_S) for text in (GOOD, BETTER))
    wholefile.write(kept.encode(old), node.copy)
    failed = 0
    for nth in range(4):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, Failing(getattr(os, step), nth, fault))
            try:
                wholefile.write(kept.encode(new), node.copy)
            except (OSError, Killed):
                failed += 1
        assert kept.read(node.copy) in (old, new)
    assert failed, "the step is one of the write's"
    wholefile.write(kept.encode(new), node.copy)
    assert kept.read(node.copy) == new, "nothing that was left behind is in the way"
    assert os.listdir(node.copy.parent) == [node.copy.name]


class TestKeeping:
    """In the background of the event loop."""

    @pytest.fixture
    def disk(self) -> Any:
        with ThreadPoolExecutor(1) as disk:
            yield disk

    async def test_the_newest_of_many_is_kept(self, tmp_path: Path, disk: ThreadPoolExecutor) -> None:
        keeper = kept.Keeper(tmp_path / "copy", disk, asyncio.get_running_loop())
        for number in range(50):
            keeper.keep(PolicyDocument(f"# {number}\n", "file", TAKEN_S))
        await until(lambda: _text(tmp_path / "copy") == "# 49\n")
        keeper.close()
        assert keeper.problem == ""

    async def test_a_full_disk_is_told_and_tried_again(
        self, tmp_path: Path, disk: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(kept, "RETRY_S", 0.01)
        keeper = kept.Keeper(tmp_path / "copy", disk, asyncio.get_running_loop())
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            keeper.keep(PolicyDocument(GOOD, "file", TAKEN_S))
            await until(lambda: keeper.problem)
            assert keeper.problem.endswith(f"{tmp_path}/copy: No space left on device")
            assert not (tmp_path / "copy").exists()
        await until(lambda: _text(tmp_path / "copy") == GOOD)
        await until(lambda: not keeper.problem)
        keeper.close()

    async def test_what_is_not_stored_yet_is_stored_at_the_end(self, tmp_path: Path) -> None:
        disk = ThreadPoolExecutor(1)
        disk.submit(lambda: None)
        keeper = kept.Keeper(tmp_path / "copy", disk, asyncio.get_running_loop())
        keeper.keep(PolicyDocument(GOOD, "file", TAKEN_S))
        keeper.keep(PolicyDocument(BETTER, "file", TAKEN_S))
        disk.shutdown(wait=True)
        keeper.close()
        assert _text(tmp_path / "copy") == BETTER
        errors: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        for _ in range(3):
            await asyncio.sleep(0)  # what the executor has done is told only now
        assert errors == []


def _text(file: Path) -> str:
    document = kept.read(file)
    return "" if document is None else document.text
