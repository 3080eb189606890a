"""Nodes that are restarted one after the other behind a load balancer, while agents on every face work: nobody notices, and what was
acknowledged is what is stored."""

import asyncio
import threading
import time

import database
from front import ASK_EVERY, Front
from lives import OverGrid, OverMacp, OverMcp, Record
from node import PATIENCE, Node
from witness import Witness

# How long a node serves on when it is told to stop: long enough for the load balancer to learn of it.
DRAIN_SECONDS = 2
ROUNDS = 2
LEAST_TASKS = 20


class Door:
    """The load balancer, as agents see it: one server."""

    def __init__(self, nodes):
        self.name = "front"
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

        async def start():
            front = Front([(node.http, node.macp) for node in nodes])
            return await front.start()

        self.http, self.macp = asyncio.run_coroutine_threadsafe(start(), self.loop).result()


def run(place):
    """What is wrong, as sentences."""
    stored = database.started()
    nodes = [Node(f"node-{number}", stored.url, place, DRAIN_SECONDS=DRAIN_SECONDS).start() for number in (1, 2, 3)]
    record, ending, wrong = Record(), threading.Event(), []
    door = Door(nodes)
    lives = [face([door], record, ending) for face in (OverMacp, OverMcp, OverGrid)]
    try:
        for life in lives:
            life.start()
        for node in nodes * ROUNDS:
            status = node.stop()
            if status:
                wrong.append(f"{node.name} ended with {status}")
            node.start()
            # The load balancer finds out by itself.
            time.sleep(2 * ASK_EVERY)
        ending.set()
        for life in lives:
            life.join(PATIENCE)
        # Counted before the witness asks, which is heard over the same record.
        unanswered = record.unanswered
        wrong += compared(record, stored, nodes[:1])
    finally:
        for node in nodes:
            node.kill()
    print(f"{len(nodes) * ROUNDS} restarts, {record.ended} tasks, {len(record.writes)} writes, {unanswered} without an answer")
    if unanswered:
        wrong.append(f"{unanswered} requests had no answer")
    if record.ended < LEAST_TASKS:
        wrong.append(f"expected at least {LEAST_TASKS} tasks, found {record.ended}")
    return record.failures + wrong


def compared(record, stored, nodes):
    """What differs between what agents were told and what is stored."""
    witness = Witness(record, stored, nodes)
    witness.check()
    # With too few tasks, which is said anyway, there is nothing to tamper with.
    if record.ended >= LEAST_TASKS:
        witness.can_fail()
    print(f"{sum(len(log) for log in witness.logs.values())} events, {len(record.reads)} reads compared with what is stored")
    return witness.wrong
