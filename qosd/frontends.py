"""Decides which front end edits containers while they are created: the runtime proxy's hooks, or NRI.

Both may be attached, and both ask the same engine, but a container is edited by one only. Precedence: the proxy as
long as a hook connection is open, because it was put there on purpose, covers sandboxes too and can refuse; else NRI
while it is registered; else none, and the reconciler alone sets values after containers have started. The reconciler
runs in any case. ``preferred`` swaps the first two, for a node that moves from the proxy to NRI: then hook calls
are answered without edits while NRI is registered.

Invariant: it is asked at each call, so a front end that comes or goes takes effect with the next one. A change in the
middle of a creation does no harm: the edits of both are the same, and editing twice gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class FrontEnd(StrEnum):
    """The part that sets containers' values. RECONCILER: neither of the others is attached."""

    PROXY = "proxy"
    NRI = "nri"
    RECONCILER = "reconciler"


@dataclass(frozen=True, slots=True)
class FrontEnds:
    """``hook_connections``: how many are open now; ``nri_runtime``: the runtime that registered our plugin ("" = none).

    ``enabled``: is the strategy ``hooks`` on? If the operator has switched it off, no front end edits.
    """

    hook_connections: Callable[[], int]
    nri_runtime: Callable[[], str]
    enabled: Callable[[], bool] = lambda: True
    preferred: FrontEnd = FrontEnd.PROXY

    def acting(self) -> FrontEnd:
        """Returns the one that edits now."""
        if self.preferred is FrontEnd.NRI and self.nri_runtime():
            return FrontEnd.NRI
        if self.hook_connections():
            return FrontEnd.PROXY
        return FrontEnd.NRI if self.nri_runtime() else FrontEnd.RECONCILER

    def proxy_acts(self) -> bool:
        """Is a hook call to be answered with edits?"""
        return self.enabled() and self.acting() is FrontEnd.PROXY

    def nri_acts(self) -> bool:
        """Is an NRI request to be answered with edits?"""
        return self.enabled() and self.acting() is FrontEnd.NRI

    def describe(self) -> str:
        """Returns a sentence for ``koordctl doctor``: which front end acts, and which other one is attached."""
        if not self.enabled():
            return "the hooks are switched off: no front end edits a container, and the reconciler holds no value"
        attached, acting = self._attached(), self.acting()
        if acting is FrontEnd.RECONCILER:
            return (
                "no runtime proxy is connected and NRI is not registered: the reconciler alone sets containers' "
                "values, after they started"
            )
        others = [self._name(one) for one in attached if one is not acting]
        idle = f"; {others[0]} is attached too and answered without edits" if others else ""
        return f"{self._name(acting)} edits containers while they are created{idle}; the reconciler keeps their values"

    def _attached(self) -> list[FrontEnd]:
        proxy = [FrontEnd.PROXY] if self.hook_connections() > 0 else []
        return [*proxy, FrontEnd.NRI] if self.nri_runtime() else proxy

    def _name(self, front_end: FrontEnd) -> str:
        if front_end is FrontEnd.PROXY:
            count = self.hook_connections()
            return f"the runtime proxy ({count} hook connection{'' if count == 1 else 's'})"
        return f"NRI of {self.nri_runtime()}"
