"""What lies between the nodes and their database: a relay that delays, stalls and cuts, also between a commit and its answer."""

import asyncio
import contextlib
import random
import threading

PIECE = 65536

# What a call that appends has in it, and what the database says when a call has come to its end.
APPENDS = b"append_v1("
AT_REST = b"Z\x00\x00\x00\x05I"


class Between:
    """Relays connections to a database that may change. Everything is counted."""

    def __init__(self, target):
        self.target, self.delay = target, 0.0
        self.flows, self.stalled = set(), None
        self.to_cut, self.cuts, self.doubts = 0, 0, 0
        self.loop = asyncio.new_event_loop()
        self.address = None
        begun = threading.Event()
        threading.Thread(target=self._run, args=[begun], daemon=True).start()
        begun.wait()

    def _run(self, begun):
        async def serve():
            self.go = asyncio.Event()
            self.go.set()
            server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
            self.address = server.sockets[0].getsockname()[:2]
            begun.set()
            await server.serve_forever()

        self.loop.run_until_complete(serve())

    @property
    def url(self):
        return "postgres://handover@{}:{}/postgres".format(*self.address)

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

    def stall(self):
        """Nothing goes through, and nothing ends."""
        self._do(lambda: self.go.clear())

    def go_on(self):
        self._do(lambda: self.go.set())

    async def _relay(self, reader, writer):
        try:
            other_reader, other_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.close()
            return
        flow = Flow(self, writer, other_writer)
        self.flows.add(flow)
        pieces = [asyncio.create_task(flow.ask(reader)), asyncio.create_task(flow.answer(other_reader))]
        await asyncio.wait(pieces, return_when=asyncio.FIRST_COMPLETED)
        for piece in pieces:
            piece.cancel()
        self.flows.discard(flow)
        flow.cut()


class Flow:
    """One connection through the relay."""

    def __init__(self, between, to_node, to_database):
        self.between, self.to_node, self.to_database = between, to_node, to_database
        self.withheld = None

    def cut(self):
        for writer in (self.to_node, self.to_database):
            with contextlib.suppress(OSError, AttributeError):
                writer.transport.abort()

    async def _pause(self):
        await self.between.go.wait()
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
