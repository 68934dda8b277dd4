"""What can go wrong with a step."""


class InstallError(Exception):
    """A step cannot be done, or did not have the effect that it is for."""
