"""The ways of reading that are compared read the same."""

from __future__ import annotations

from bench import decode


def test_every_way_reads_the_same_pods() -> None:
    body = decode.pod_list(3)
    assert list(decode.natively(body)) == decode.by_schema(body)
    assert [pod.metadata.uid for pod in decode.natively(body)] == [pod.uid for pod in decode.as_qosd(body)]
    assert [pod.cpu_request_milli for pod in decode.as_qosd(body)] == [500] * 3
