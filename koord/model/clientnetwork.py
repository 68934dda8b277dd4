"""The network of a client's address: a client with one address of a network may well have all of them.

A machine has an IPv6 /64 for itself, and a tenant has an address of a cluster's pod network for each of its pods, a /24
for each node. So what a client may cost is shared by network first, and within it by address. Pure.
"""

from __future__ import annotations

import functools
import ipaddress

_PREFIXES = {4: 24, 6: 64}


@functools.lru_cache(maxsize=4096)
def network_of(source: str) -> str:
    """The /24 or /64 of an address; what is none is a network of its own. An IPv4 address in IPv6's form is IPv4."""
    try:
        address = ipaddress.ip_address(source)
    except ValueError:
        return source
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    shift = address.max_prefixlen - _PREFIXES[address.version]
    return f"{type(address)(int(address) >> shift << shift)}/{_PREFIXES[address.version]}"
