"""CPU suppression: how much of the node best-effort pods may have, so that the others do not notice them.

``strategy`` decides, by one of the policies; what it decides ``qosd.strategies.besteffort`` puts on the kernel's files,
and hooks and pools give it to containers that come.
"""
