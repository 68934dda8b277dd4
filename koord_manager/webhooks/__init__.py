"""What API servers ask about objects before they are stored, and what is answered.

    small review ─▶ ``webhooks`` ─▶ ``judges`` (pure)            on the event loop
    large review ─▶ ``largereviews`` ═▶ ``reviewprocess`` ─▶ ``judges``     in a process of its own

``koord.webhook.server`` has HTTP, TLS and the bounds. Invariant: a review is judged by the same functions and the
same view of the cluster wherever that is done.
"""
