"""TLS of a component's servers: certificates, the Secret that holds them, and the listener that presents them.

From below: ``certificates`` (keys, signing, what is wrong with a certificate), ``servingcerts`` (a pure plan for the
Secret, the bundles in webhook configurations and the server), ``servingloop`` (carries it out), ``context`` (a
server's certificate, exchangeable while it serves), ``listener`` (bounds on connections and handshakes).
"""
