"""An agent that works by itself, as the documentation tells receivers to: `worker.py HOST:PORT NAME`.

It hears of a task, reads it, acknowledges it, says that it works and replies. By the session key that it gave a task it
knows which conversation a notification belongs to, before it fetches anything. It says what it hears as lines of JSON.
"""

import json
import sys
import threading

from agent import Agent


def say(**what):
    print(json.dumps(what), flush=True)


def words(messages):
    parts = [part for message in messages if message["role"] == "user" for part in message["parts"]]
    return [part["text"] for part in parts if part["type"] == "text"]


class Worker:
    def __init__(self, agent):
        self.agent = agent
        # What was said in each conversation, under the worker's own names for them.
        self.conversations = {}

    def begin(self, task):
        key = f"conversation-{len(self.conversations)}"
        self.conversations[key] = []
        read = self.agent.call("task/read", taskId=task)
        self.agent.call("message/ack", taskId=task)
        self.agent.call("task/update", taskId=task, state="working", sessionKey=key)
        self.reply(key, task, read)

    def go_on(self, key, task):
        read = self.agent.call("task/read", taskId=task)
        self.agent.call("message/ack", taskId=task)
        self.reply(key, task, read)

    def reply(self, key, task, read):
        said = self.conversations[key]
        said += words(read["messages"])
        self.agent.call("message/send", taskId=task, message=f"{key}: {', '.join(said)}")

    def hear(self, told):
        key, task = told["receiverSessionKey"], told["taskId"]
        say(heard=told["kind"], key=key, task=task, knows=key in self.conversations, state=told.get("state"))
        if told["kind"] == "task":
            self.begin(task)
        elif told["kind"] == "message":
            self.go_on(key, task)


def main(address, name):
    host, port = address.rsplit(":", 1)
    agent = Agent((host, int(port)), name)
    stream, worker = agent.listen(), Worker(agent)
    say(ready=name)

    def work():
        while True:
            worker.hear(stream.told.get().data)

    threading.Thread(target=work, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
