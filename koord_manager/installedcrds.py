"""What the installed CustomResourceDefinitions lack of what this release writes, said once when a replica starts.

Another release's definitions may be installed: an API server drops what they do not list, without a word, and all else
works. So they are used as far as they go, and stay as they are. Invariant: nothing waits for this, and nothing fails by
it; definitions that cannot be compared are reported, too.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from koord.kube.client import Client
from koord.kube.errors import APIError, KubeError
from koord.kube.kind import CUSTOM_RESOURCE_DEFINITION, Key
from koord.model import crdfit
from koord.model.crdfit import Fit

DIRECTORIES = (
    Path(sys.prefix, "share/koord/manifests/crds"),
    Path(__file__).parents[1] / "manifests/crds",
)
"""Where this release's own definitions are: of a wheel, of a source tree."""
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_log = logging.getLogger(__name__)


class InstalledCRDs:
    """``fits``: of each definition that was compared, by its name."""

    def __init__(self, client: Client, directories: Sequence[Path] = DIRECTORIES) -> None:
        self._client, self._directories = client, directories
        self.fits: Mapping[str, Fit] = {}

    @property
    def faults(self) -> Mapping[str, int]:
        """The number of fields and features that each lacks."""
        return {name: len(each.lacking) + len(each.mistyped) + len(each.problems) for name, each in self.fits.items()}

    async def compare(self) -> None:
        """Says what is wrong. Raises nothing but CancelledError."""
        try:
            definitions = await asyncio.to_thread(_read, self._directories)
        except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
            _log.warning("the installed CustomResourceDefinitions are not compared with this release's: %s", error)
            return
        for name, desired in definitions.items():
            await self._compare(name, desired)

    async def _compare(self, name: str, desired: crdfit.Document) -> None:
        try:
            installed = await self._client.get(CUSTOM_RESOURCE_DEFINITION, Key("", name))
        except KubeError as error:
            is_absent = isinstance(error, APIError) and error.is_not_found
            why = "is not installed: kubectl apply -f manifests/crds" if is_absent else f"cannot be compared: {error}"
            _log.warning("CustomResourceDefinition %s %s", name, why)
            return
        fit = crdfit.fit(desired, installed.content)
        self.fits = {**self.fits, name: fit}
        if not fit.is_complete:
            _log.warning("%s It is used as far as it goes.", fit.sentence())


def _read(directories: Sequence[Path]) -> Mapping[str, crdfit.Document]:
    """Reads the documents by name. Raises OSError, YAMLError, KeyError or TypeError."""
    directory = next((each for each in directories if each.is_dir()), None)
    if directory is None:
        raise FileNotFoundError(f"no directory {' or '.join(map(str, directories))}")
    documents = [yaml.load(file.read_bytes(), _Loader) for file in sorted(directory.glob("*.yaml"))]
    return {document["metadata"]["name"]: document for document in documents}
