"""The Debian package and the offline bundle: what is in them, and what their scripts do, without booting a machine."""
