"""NodeLink: what nodes use this second, and the evictions that they ask for, over gRPC with an identity per node.

    connection ─▶ ``identity``, ``tokens`` (whose is it?) ─▶ ``service`` ─▶ ``freshusage`` ─▶ noderesource controller
    CertificateSigningRequest ─▶ ``signing`` (pure) ◀─ ``signer`` ─▶ approval, certificate

``server`` puts the parts together. Only the leader takes reports, signs and evicts. Invariant: without NodeLink nothing
is lost but time; the controllers work by the objects alone.
"""
