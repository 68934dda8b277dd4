"""Bytes on the wire, as pure functions: protobuf fields. No sockets, no CRI."""
