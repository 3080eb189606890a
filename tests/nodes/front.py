"""A small load balancer: each connection goes to another node, and over HTTP each request. Nodes that are not ready are passed over.

It is there to show that any node serves any request, so it does the opposite of keeping a client on one node.
"""

import asyncio
import contextlib
import itertools

# How often the nodes are asked whether they are ready.
ASK_EVERY = 0.25
PIECE = 65536
HEAD_MOST = 256 * 1024


class Front:
    """Balances over nodes that are given as pairs of addresses, (HTTP, MACP)."""

    def __init__(self, nodes):
        self.nodes, self.turn = list(nodes), itertools.count()
        self.ready = set(range(len(self.nodes)))
        self.servers, self.asking = [], None

    async def start(self, http=("127.0.0.1", 0), macp=("127.0.0.1", 0)):
        """Begin to listen, and say where: the addresses of HTTP and MACP."""
        for at, serve in ((http, self._http), (macp, self._macp)):
            self.servers.append(await asyncio.start_server(serve, *at, limit=HEAD_MOST))
        self.asking = asyncio.create_task(self._ask())
        return [server.sockets[0].getsockname()[:2] for server in self.servers]

    def stop(self):
        self.asking.cancel()
        for server in self.servers:
            server.close()

    async def _ask(self):
        while True:
            for index, (http, _) in enumerate(self.nodes):
                (self.ready.add if await is_ready(http) else self.ready.discard)(index)
            await asyncio.sleep(ASK_EVERY)

    async def _connect(self, kind):
        """A connection to the next node that takes one, those first that say they are ready."""
        count = len(self.nodes)
        first = next(self.turn)
        order = [(first + step) % count for step in range(count)]
        for index in sorted(order, key=lambda index: index not in self.ready):
            with contextlib.suppress(OSError):
                return await asyncio.open_connection(*self.nodes[index][kind])
        raise ConnectionRefusedError("no node answers")

    async def _macp(self, reader, writer):
        with contextlib.suppress(OSError):
            await both_ways(reader, writer, *await self._connect(1))
        writer.close()

    async def _http(self, reader, writer):
        """One request after the other, each to another node. The answer ends with the connection to the node, unless its
        length is known: then the client's connection goes on."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while True:
                head = await reader.readexactly(1)
                is_tls = head == b"\x16"
                head += b"" if is_tls else await reader.readuntil(b"\r\n\r\n")
                # What cannot be taken apart goes to one node as it is.
                if is_tls or head.startswith(b"PRI * HTTP/2.0"):
                    other = await self._connect(0)
                    other[1].write(head)
                    await both_ways(reader, writer, *other)
                    break
                if not await self._request(head, reader, writer):
                    break
        writer.close()

    async def _request(self, head, reader, writer):
        try:
            from_node, to_node = await self._connect(0)
        except OSError:
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n")
            await writer.drain()
            return "content-length" not in fields_of(head) and "transfer-encoding" not in fields_of(head)
        try:
            line, _, rest = head.partition(b"\r\n")
            others = [one for one in rest.split(b"\r\n") if one and not one.lower().startswith(b"connection:")]
            to_node.write(b"\r\n".join([line, *others, b"connection: close", b"", b""]))
            sending = asyncio.create_task(self._body(head, reader, to_node))
            # A client that goes away takes its request back, which the node must hear.
            answering = asyncio.create_task(self._answer(from_node, writer))
            gone = asyncio.create_task(until_gone(reader))
            await asyncio.wait([answering, gone], return_when=asyncio.FIRST_COMPLETED)
            goes_on = answering.done() and not answering.exception() and answering.result() and sending.done()
            for task in (sending, answering, gone):
                task.cancel()
            return goes_on
        finally:
            to_node.close()

    async def _body(self, head, reader, to_node):
        fields = fields_of(head)
        if "chunked" in fields.get("transfer-encoding", ""):
            while True:
                size = await reader.readline()
                to_node.write(size + await reader.readexactly(int(size.split(b";")[0], 16) + 2))
                await to_node.drain()
                if int(size.split(b";")[0], 16) == 0:
                    return
        left = int(fields.get("content-length", 0))
        while left > 0:
            piece = await reader.read(min(left, PIECE))
            if not piece:
                return
            left -= len(piece)
            to_node.write(piece)
            await to_node.drain()

    async def _answer(self, from_node, writer):
        """Pass the answer on, and say whether the client can ask for more on its connection."""
        head = await from_node.readuntil(b"\r\n\r\n")
        fields = fields_of(head)
        left = int(fields["content-length"]) if "content-length" in fields else None
        lines = [one for one in head.split(b"\r\n") if one and not one.lower().startswith(b"connection:")]
        ends = [] if left is not None else [b"connection: close"]
        writer.write(b"\r\n".join([*lines, *ends, b"", b""]))
        while left is None or left > 0:
            piece = await from_node.read(PIECE if left is None else min(left, PIECE))
            if not piece:
                break
            left = None if left is None else left - len(piece)
            writer.write(piece)
            await writer.drain()
        await writer.drain()
        return left == 0


def fields_of(head):
    """The fields of a head, in lower case."""
    lines = (line.partition(":") for line in head.decode("latin-1").lower().split("\r\n")[1:] if line)
    return {name.strip(): value.strip() for name, _, value in lines}


async def until_gone(reader):
    """Returns when the other end has closed its connection and everything that it sent is read."""
    while not reader.at_eof():
        await asyncio.sleep(0.1)


async def both_ways(reader, writer, other_reader, other_writer):
    async def pass_on(source, sink):
        with contextlib.suppress(OSError):
            while piece := await source.read(PIECE):
                sink.write(piece)
                await sink.drain()
        with contextlib.suppress(OSError):
            if sink.can_write_eof():
                sink.write_eof()

    await asyncio.gather(pass_on(reader, other_writer), pass_on(other_reader, writer))
    other_writer.close()


async def is_ready(http):
    """Whether a node says that it is ready."""
    try:
        async with asyncio.timeout(2):
            reader, writer = await asyncio.open_connection(*http)
            writer.write(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            line = await reader.readline()
            writer.close()
            return b" 200 " in line
    except (OSError, TimeoutError):
        return False
