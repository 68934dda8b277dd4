"""Container images of koord-manager, koord-scheduler and the node agent, without a container builder: ``make images``.

``python`` lays out an interpreter and the libraries that it needs, ``release.tree`` our packages beside it, and
``archive`` packs both as an archive that ``ctr images import`` and ``docker load`` take. ``Containerfile`` is the same
for who has a builder and a registry.
"""
