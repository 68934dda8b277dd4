"""Admission webhooks of a component: an HTTPS server that answers AdmissionReviews, and what bounds its clients.

From below: ``fairshare`` (how much one client may hold) and ``turns`` (whose review is judged next), ``reviews`` (bytes
to a review and back), ``server``. What a review is answered is the component's.
"""
