"""HTTP/2 by its frames (RFC 9113), for clients that no library would let be like that."""

import itertools

from server import connect

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, WINDOW = 0, 1, 3, 4, 6, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1

# The widest window.
WIDE = (1 << 31) - 1


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def settings(*values):
    """These settings, and that headers are not to be put into tables."""
    return frame(SETTINGS, 0, 0, b"".join(n.to_bytes(2, "big") + v.to_bytes(4, "big") for n, v in ((1, 0), *values)))


def headers(stream, flags, fields):
    """Fields that are in no table and not compressed (RFC 7541, section 6.2.2); all are shorter than 127 bytes."""
    fields = [*fields[:2], (":scheme", "http"), (":authority", "localhost"), *fields[2:]]
    block = b"".join(b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in field) for field in fields)
    return frame(HEADERS, END_HEADERS | flags, stream, block)


def grpc(message):
    return b"\0" + len(message).to_bytes(4, "big") + message


class Two:
    """A client that reads only when it is told to."""

    def __init__(self, address, *values):
        self.socket = connect(address)
        self.socket.sendall(PREFACE + settings(*values))
        self.ended = set()
        self.received = b""
        self.streams = itertools.count(1, 2)

    def open_wide(self):
        """Let the server send as much as it likes."""
        self.send(frame(WINDOW, 0, 0, (WIDE - 65_535).to_bytes(4, "big")))

    def send(self, *frames):
        self.socket.sendall(b"".join(frames))

    def get(self, path):
        """Ask for a page."""
        stream = next(self.streams)
        self.send(headers(stream, END_STREAM, [(":method", "GET"), (":path", path)]))

    def post(self, path, fields, body):
        """Post a body that fits into a frame."""
        stream = next(self.streams)
        fields = [(":method", "POST"), (":path", path), *((name, fields[name]) for name in fields if name != "host")]
        self.send(headers(stream, 0, fields), frame(DATA, END_STREAM, stream, body))

    def call(self, path, token=None, body=b"", last=False):
        """Begin a call of gRPC."""
        stream = next(self.streams)
        fields = [(":method", "POST"), (":path", path), ("content-type", "application/grpc"), ("te", "trailers")]
        fields += [("authorization", f"Bearer {token}")] if token else []
        self.send(headers(stream, 0, fields), frame(DATA, END_STREAM if last else 0, stream, body))

    def take(self):
        """Take one frame: its kind and its flags."""
        head = self._exactly(9)
        payload = self._exactly(int.from_bytes(head[:3], "big"))
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
        if kind == SETTINGS and not flags & ACK:
            self.send(frame(SETTINGS, ACK, 0))
        if kind == RESET or (kind in (DATA, HEADERS) and flags & END_STREAM):
            self.ended.add(stream)
        return kind, flags, payload

    def ping(self):
        """Returns when the server has taken everything so far."""
        self.send(frame(PING, 0, 0, bytes(8)))
        while self.take()[:2] != (PING, ACK):
            pass

    def close(self):
        self.socket.close()

    def _exactly(self, count):
        while len(self.received) < count:
            part = self.socket.recv(65536)
            assert part, "the server ended the connection"
            self.received += part
        taken, self.received = self.received[:count], self.received[count:]
        return taken
