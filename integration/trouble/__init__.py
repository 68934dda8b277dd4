"""The proxy's process on a machine that is out of something."""
