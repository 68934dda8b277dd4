"""What two or more of Koord's processes share. Layers, top to bottom: service and host, pb, model."""

__version__ = "0.1.0"
