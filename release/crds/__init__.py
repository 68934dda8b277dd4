"""The CustomResourceDefinitions that Koord owns, written from the structs that read their objects.

``python -m release.crds`` writes ``manifests/crds/``; ``--check`` names each file there that differs from what would be
written, and fails. A struct and its schema therefore cannot part.

``kinds`` is the table; ``schemas`` makes a structural schema of a struct, ``descriptions`` finds its sentences, and
``manifest`` puts the document around both. Objects of an installed Koordinator must pass these schemas as they passed
its own. So a schema has the bounds and the choices that upstream's has: where a struct is stricter, ``kinds`` has what
the API server takes, and the node refuses such a leaf itself, alone, and says so. Nor has a schema a default of its
own, but for one that upstream requires: what is absent is filled in by who reads it.
"""
