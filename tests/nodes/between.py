"""What lies between the nodes and their database: a relay that delays, stalls and cuts, also between a commit and its answer."""

import asyncio
import contextlib
import functools
import random
import threading

PIECE = 65536

# What a call that appends has in it, and what the database says when a call has come to its end.
APPENDS = b"append_v1("
AT_REST = b"Z\x00\x00\x00\x05I"


class Between:
    """Relays connections to a database that may change, each node's by a door of its own. Everything is counted."""

    def __init__(self, target, doors):
        self.target, self.delay = target, 0.0
        self.flows = set()
        self.to_cut, self.cuts, self.doubts = 0, 0, 0
        self.loop = asyncio.new_event_loop()
        self.go, self.addresses = [asyncio.Event() for _ in range(doors)], []
        begun = threading.Event()
        threading.Thread(target=self._run, args=[begun], daemon=True).start()
        begun.wait()

    def _run(self, begun):
        async def serve():
            for go in self.go:
                go.set()
                server = await asyncio.start_server(functools.partial(self._relay, go), "127.0.0.1", 0)
                self.addresses.append(server.sockets[0].getsockname()[:2])
            begun.set()
            await asyncio.Event().wait()

        self.loop.run_until_complete(serve())

    def url(self, door=0):
        return "postgres://handover@{}:{}/postgres".format(*self.addresses[door])

    def _do(self, work):
        async def now():
            return work()

        return asyncio.run_coroutine_threadsafe(now(), self.loop).result()

    def cut(self, share=1.0):
        """End connections without a word, all or some of them."""

        def work():
            cut = [flow for flow in self.flows if random.random() < share]
            self.cuts += len(cut)
            for flow in cut:
                flow.cut()

        self._do(work)

    def cut_after_commit(self):
        """The next call that appends is committed, and its connection ends before the answer."""
        self._do(lambda: setattr(self, "to_cut", self.to_cut + 1))

    def stall(self, door=None):
        """Nothing goes through, and nothing ends: at one door, or at all."""
        self._do(lambda: [go.clear() for go in self._at(door)])

    def go_on(self, door=None):
        self._do(lambda: [go.set() for go in self._at(door)])

    def _at(self, door):
        return self.go if door is None else [self.go[door]]

    async def _relay(self, go, reader, writer):
        try:
            other_reader, other_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.close()
            return
        flow = Flow(self, go, writer, other_writer)
        self.flows.add(flow)
        pieces = [asyncio.create_task(flow.ask(reader)), asyncio.create_task(flow.answer(other_reader))]
        await asyncio.wait(pieces, return_when=asyncio.FIRST_COMPLETED)
        for piece in pieces:
            piece.cancel()
        self.flows.discard(flow)
        flow.cut()


class Flow:
    """One connection through the relay."""

    def __init__(self, between, go, to_node, to_database):
        self.between, self.go, self.to_node, self.to_database = between, go, to_node, to_database
        self.withheld = None

    def cut(self):
        for writer in (self.to_node, self.to_database):
            with contextlib.suppress(OSError, AttributeError):
                writer.transport.abort()

    async def _pause(self):
        await self.go.wait()
        if self.between.delay:
            await asyncio.sleep(random.random() * self.between.delay)

    async def ask(self, reader):
        with contextlib.suppress(OSError):
            while piece := await reader.read(PIECE):
                if self.between.to_cut and self.withheld is None and APPENDS in piece:
                    self.between.to_cut -= 1
                    self.withheld = b""
                await self._pause()
                self.to_database.write(piece)
                await self.to_database.drain()

    async def answer(self, reader):
        with contextlib.suppress(OSError):
            while piece := await reader.read(PIECE):
                await self._pause()
                if self.withheld is not None:
                    self.withheld += piece
                    if self.withheld.endswith(AT_REST):
                        # An answer that is a refusal committed nothing.
                        self.between.doubts += b"SERROR" not in self.withheld
                        self.between.cuts += 1
                        return
                    continue
                self.to_node.write(piece)
                await self.to_node.drain()
