"""Makes what is shipped from the wheel: the Debian package and the air-gapped bundle. Not part of the wheel."""
