"""NRI, the attachment without a proxy: qosd as a plugin of the container runtime, over the hook engine.

``mux`` and ``ttrpc`` are the wire, ``connection`` speaks it, ``translate`` and ``service`` turn the runtime's calls
into the engine's decisions, ``plugin`` attaches and stays attached.
"""
