"""An agent that does what it is told line by line, and says what it hears: `remote.py HOST:PORT NAME`."""

import json
import sys
import threading

from agent import Agent, Refused

lock = threading.Lock()


def say(what):
    with lock:
        print(json.dumps(what), flush=True)


def tell(stream):
    while True:
        say({"told": stream.told.get().data})


def main(address, name):
    host, port = address.rsplit(":", 1)
    agent = Agent((host, int(port)), name)
    stream = agent.listen()
    threading.Thread(target=tell, args=[stream], daemon=True).start()
    say({"ready": name})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            say({"result": agent.call(asked["method"], **asked["params"])})
        except Refused as no:
            say({"refused": [no.status, no.error]})


if __name__ == "__main__":
    main(*sys.argv[1:])
