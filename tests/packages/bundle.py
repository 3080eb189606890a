"""Does with a bundle what a host does: unpacks it, puts the user's settings into its manifest, and speaks MCP with what that starts.
Its arguments: the bundle, and the binary of a server to bridge to."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PATIENCE = 60


def main(bundle, binary):
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        with zipfile.ZipFile(bundle) as packed:
            for entry in packed.infolist():
                path = pathlib.Path(packed.extract(entry, place))
                # Python forgets the modes.
                path.chmod(entry.external_attr >> 16 or 0o644)
        manifest = json.loads((place / "manifest.json").read_text())
        command = [binary, "serve", "--json", "--data", place / "data", "--http", "127.0.0.1:0", "--macp", "127.0.0.1:0", "--admin", "off"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HANDOVER_")}
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
        try:
            ready = json.loads(server.stdout.readline())
            said = {name: setting.get("default", "") for name, setting in manifest["user_config"].items()}
            said |= {"server": f"http://{ready['http']}", "token": "planner"}

            def filled(text):
                for name, value in said.items():
                    text = text.replace(f"${{user_config.{name}}}", value)
                return text.replace("${__dirname}", str(place))

            start = manifest["server"]["mcp_config"]
            command = [filled(part) for part in [start["command"], *start["args"]]]
            asked = [
                {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}},
                {"jsonrpc": "2.0", "method": "notifications/initialized"},
                {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "delegate_task", "arguments": {"agent": "worker", "title": "bundled", "instructions": "count", "queue": True}}},
            ]
            lines = "".join(json.dumps(one) + "\n" for one in asked)
            bridge = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment | {key: filled(value) for key, value in start["env"].items()})
            bridge.stdin.write(lines)
            bridge.stdin.flush()
            answers = {}
            while 2 not in answers:
                line = bridge.stdout.readline()
                assert line, "the bridge ended"
                answer = json.loads(line)
                answers[answer.get("id")] = answer
            bridge.stdin.close()
            assert bridge.wait(PATIENCE) == 0
            assert answers[1]["result"]["serverInfo"]["version"] == manifest["version"], answers[1]
            assert not answers[2]["result"].get("isError"), answers[2]
            print("the bundle speaks MCP, and has handed out a task")
        finally:
            server.terminate()
            server.wait(PATIENCE)


main(*sys.argv[1:])
