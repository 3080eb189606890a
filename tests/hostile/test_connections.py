"""Connections are bounded in number and in time, on both listeners."""

import contextlib
import os
import resource
import socket

import over_mcp as mcp
import pytest
from frames import PREFACE, Two, settings
from over_macp import serves_the_honest
from server import MANY, SECONDS_MOST, connect, is_closed, token_of, until

SILENT = 1100
FILES = 1024


def silent(server, listener, count=SILENT):
    """Sockets that say nothing, held open."""
    held = contextlib.ExitStack()
    address = getattr(server, listener)
    for _ in range(count):
        held.enter_context(connect(address))
    return held


def files_of(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


@pytest.mark.parametrize("listener", ["http", "macp"])
def test_silent_sockets_shut_nobody_out_where_few_files_may_be_open(serve, listener):
    server = serve(files=FILES)
    with silent(server, listener):
        serves_the_honest(server)
        until(lambda: server.dropped(listener, "displaced") > SILENT - FILES, "some made way")
        assert server.open_connections(listener) < FILES / 2
        assert files_of(server) < FILES - 100
    # With the most that the files of this machine allow, nobody makes way.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = min(hard - 400, 4000)
    name = {"http": "LIMITS_CONNECTIONS_MAX", "macp": "LIMITS_MACP_CONNECTIONS_MAX"}[listener]
    unlimited = serve(**{name: most - 400})
    with silent(unlimited, listener):
        until(lambda: unlimited.open_connections(listener) >= SILENT, "all are held")
        assert unlimited.dropped(listener, "displaced") == 0


# Planted: the library's own queue, of 128.
def test_connections_that_come_at_once_wait_to_be_accepted(serve):
    server = serve()
    server.signal("SIGSTOP")
    with contextlib.ExitStack() as held:
        waiting = min(1000, int(open("/proc/sys/net/core/somaxconn").read()))
        for _ in range(waiting):
            # The system answers for the server. Where it has no place left, this one would be tried again after a second.
            held.enter_context(socket.create_connection(server.macp, timeout=0.9))
        server.signal("SIGCONT")
        serves_the_honest(server)


def own_address():
    """An address of this machine that is not loopback: one from which others would come."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            # Nothing is sent: this is how the system says which address it would use.
            asking.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address = asking.getsockname()[0]
    return None if address.startswith(("127.", "0.")) else address


def test_one_address_has_so_many_connections_and_no_more(serve):
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")
    outside = {"http": f"{address}:0", "TLS_TERMINATED_ELSEWHERE": "true", "HTTP_HOSTS": "localhost"}
    server = serve(**outside)
    with silent(server, "http", 300):
        until(lambda: server.dropped("http", "displaced") == 300 - 256, "those beyond made way")
        until(lambda: server.open_connections("http") == 256, "they are gone")
    unlimited = serve(**outside, LIMITS_CONNECTIONS_PER_ADDRESS_MAX=MANY)
    with silent(unlimited, "http", 300):
        until(lambda: unlimited.open_connections("http") == 300, "all are held")


def both(serve, name, seconds):
    """A server that has little patience, and one that has as much as there can be."""
    return serve(**{name: seconds}), serve(**{name: SECONDS_MOST})


def test_a_head_that_does_not_come_to_its_end_is_not_waited_for(serve):
    openings = {
        "http": [b"", b"GET / HTTP/1.1\r\nhost: loc", b"PRI * HTTP", PREFACE + settings()],
        "macp": [b"", b"PRI * HTTP", PREFACE + settings()],
    }
    hasty, patient = both(serve, "LIMITS_HEAD_SECONDS", 1)

    def slow(server):
        opened = [(connect(getattr(server, name)), opening) for name in openings for opening in openings[name]]
        for stream, opening in opened:
            stream.sendall(opening)
        return [stream for stream, _ in opened]

    waiting, closing = slow(patient), slow(hasty)
    until(lambda: all(is_closed(stream) for stream in closing), "all slow heads were let go")
    dropped = [hasty.dropped(name, "head") for name in openings]
    assert dropped == [len(sent) for sent in openings.values()]
    serves_the_honest(hasty)
    assert not any(is_closed(stream) for stream in waiting)
    assert [patient.dropped(name, "head") for name in openings] == [0, 0]


def test_a_body_that_does_not_come_to_its_end_is_not_waited_for(serve):
    hasty, patient = both(serve, "LIMITS_BODY_SECONDS", 1)

    def slow(server):
        streams = [connect(server.http) for _ in range(20)]
        for stream in streams:
            body = mcp.raw(mcp.request("tools/list"), token_of("mallory"), length=5000, connection="close")
            stream.sendall(body)
        calls = Two(server.macp)
        for path in ("Send", "GetSession", "StreamSession", "ListSessions"):
            calls.call(f"/macp.v1.MACPRuntimeService/{path}", token_of("mallory"), b"\0\0\0\1\0x")
        return streams, calls

    (waiting, their_calls), (closing, calls) = slow(patient), slow(hasty)
    until(lambda: all(is_closed(stream) for stream in closing), "all slow bodies were answered")
    while len(calls.ended) < 4:
        calls.take()
    assert hasty.metric('handover_requests_unread_total{why="time"}') == 24
    serves_the_honest(hasty)
    their_calls.ping()
    assert not any(is_closed(stream) for stream in waiting) and not their_calls.ended
    assert patient.metric('handover_requests_unread_total{why="time"}') == 0


def test_a_reader_that_never_reads_is_let_go(serve):
    hasty, patient = both(serve, "LIMITS_WRITE_SECONDS", 1)

    def unread(server):
        """Ask for more than any socket holds, and read none of it."""
        stream = connect(server.http)
        stream.settimeout(0.5)
        for _ in range(50):
            try:
                stream.sendall(b"GET /errors HTTP/1.1\r\nhost: localhost\r\n\r\n" * 500)
            except OSError:
                break
        # On HTTP/2 a stream that is given no window.
        stuck = Two(server.http, (4, 0))
        stuck.get("/errors")
        return stream, stuck

    kept, closed = unread(patient), unread(hasty)
    until(lambda: hasty.dropped("http", "reader") == 1, "who read nothing was let go")
    until(lambda: hasty.dropped("http", "stream_reader") == 1, "the stream without a window was reset")
    closed[1].ping()
    serves_the_honest(hasty)
    assert (patient.dropped("http", "reader"), patient.dropped("http", "stream_reader")) == (0, 0)
    kept[0].close()
