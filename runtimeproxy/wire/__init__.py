"""Bytes on the wire, as pure functions: HTTP/2 frames, header blocks, protobuf fields. No sockets, no CRI."""
