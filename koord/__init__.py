"""What two or more of Koord's processes share. Layers, top to bottom: service and host, pb, model."""

from koord._version import __version__ as __version__  # written by the build, from git's tags
