"""Makes the images from Koord's wheel: which packages and programs each has, and how its tree is put together.

With a cache directory the parts that do not follow from our own code are kept there: the interpreter's tree, by the
interpreter and the page that lays it out, and the wheels of others, by their versions and hashes.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from release import tree
from release.images import archive, python
from release.images.archive import Image
from release.run import run
from release.wheels import Wheel, fetch_others, in_directory, lock_files

REGISTRY = "localhost"
"""The registry of the chart's default values: nodes have imported these images, and no registry serves them."""
ROOT = Path(__file__).parents[2]
_ENVIRONMENT = {"PATH": "/usr/bin", "LANG": "C.UTF-8"}
_ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/:/usr/bin/false\nkoord:x:65532:65532:koord:/:/usr/bin/false\n",
    "etc/group": "root:x:0:\nkoord:x:65532:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """``extras``: of our wheel. ``programs``: as ``release.tree`` takes them; the first is what runs."""

    name: str
    extras: str
    programs: tuple[tuple[str, str], ...]
    user: str

    def image(self, version: str) -> Image:
        """Returns the image; its tag is the release's, which the chart names, and a tag takes no ``+``."""
        release, _, _ = version.partition("+")
        return Image(f"{REGISTRY}/{self.name}:v{release}", (self.programs[0][0],), self.user, _ENVIRONMENT)


RECIPES = (
    Recipe("koord-manager", "cluster", (("koord-manager", "koord_manager.__main__"),), "65532:65532"),
    Recipe("koord-scheduler", "scheduler", (("koord-scheduler", "koord_scheduler.__main__"),), "65532:65532"),
    Recipe(
        "koordlet", "node,cluster", tuple((name, tree.PROGRAMS[name]) for name in ("koord-qosd", "koordctl")), "0:0"
    ),
)


@dataclass(frozen=True, slots=True)
class Made:
    archive: Path
    image: Image
    digest: str
    """The image's id."""


def build(output: Path, ours: Path | None = None, cache: Path | None = None) -> list[Made]:
    """Makes all images in ``output``, of the wheel ``ours`` or else of this checkout. Raises BuildError."""
    with tempfile.TemporaryDirectory(prefix="koord-images-") as scratch:
        wheel = ours or _wheel_of_checkout(Path(scratch, "wheel"))
        kept = cache or Path(scratch, "cache")
        return list(_build(wheel, output, kept, Path(scratch)))


def _build(ours: Path, output: Path, cache: Path, scratch: Path) -> Iterator[Made]:
    version = Wheel.of(ours).version
    bare = _kept(cache / f"bare-{_interpreter()}", lay_out_bare)
    for recipe in RECIPES:
        root = scratch / recipe.name
        shutil.copytree(bare, root, symlinks=True)
        tree.lay_out(_wheels(ours, recipe, cache), version, root, dict(recipe.programs))
        python.lay_out_libraries(root)
        target, image = output / f"{recipe.name}.tar", recipe.image(version)
        yield Made(target, image, archive.write(image, root, target))


def lay_out_bare(root: Path) -> None:
    """Makes ``root``, with what all images have in common. Raises BuildError."""
    for directory in ("etc", "proc", "sys", "dev", "run", "tmp", "var/lib"):
        (root / directory).mkdir(parents=True)
    for name, text in _ACCOUNTS.items():
        (root / name).write_text(text, encoding="utf-8")
    python.lay_out(root)


def _wheels(ours: Path, recipe: Recipe, cache: Path) -> list[Wheel]:
    """Returns ``ours``, and the wheels of others that it needs."""
    locked = "\n".join(lock.read_text(encoding="utf-8") for lock in lock_files(recipe.extras))
    others = _kept(
        cache / f"wheels-{_digest(locked)}", lambda directory: fetch_others([tree.PYTHON], directory, recipe.extras)
    )
    return [Wheel.of(ours), *in_directory(others)]


def _wheel_of_checkout(directory: Path) -> Path:
    """Builds our wheel with the builder that is installed here; fetches nothing. Raises BuildError."""
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", directory, ROOT])
    (made,) = in_directory(directory)
    return made.path


def _kept(directory: Path, make: Callable[[Path], None]) -> Path:
    """Returns ``directory`` as ``make`` filled it, now or before; it is whole or absent."""
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f"{directory.name}-", dir=directory.parent))
        try:
            make(unfinished / "tree")
            (unfinished / "tree").rename(directory)
        finally:
            shutil.rmtree(unfinished)
    return directory


def _interpreter() -> str:
    """Returns a digest of the interpreter and of the code that lays it out."""
    page = Path(python.__file__).read_text(encoding="utf-8") + Path(__file__).read_text(encoding="utf-8")
    return _digest("\n".join([sys.version, sysconfig.get_path("stdlib"), page]))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
