"""The commands of the quickstart work as they are written."""

import json
import re
import subprocess

from agent import PATIENCE
from conftest import HERE

PAGE = HERE.parents[1] / "docs/grid.md"


def commands():
    """The shell blocks of the section, in order."""
    section = re.search(r"^## Quickstart\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.S | re.M)
    assert section, "docs/grid.md has no section Quickstart"
    return re.findall(r"^```sh\n(.*?)^```", section[1], re.S | re.M)


def test_the_quickstart_ends_with_a_completed_task(serve, tmp_path):
    server = serve()
    blocks = commands()
    assert len(blocks) >= 5 and "http://127.0.0.1:8420" in "".join(blocks)
    script = "set -e\n" + "\n".join(blocks).replace("http://127.0.0.1:8420", f"http://{server.http}")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"error"' not in done.stdout, done.stdout
    # What the stream tells meanwhile is in between.
    starts = [found.start() for found in re.finditer(r'\{"jsonrpc"', done.stdout)]
    answers = [json.JSONDecoder().raw_decode(done.stdout, start)[0] for start in starts]
    assert len(answers) == 6
    assert answers[-1]["result"]["task"]["state"] == "completed"
    # What the page shows underneath is what is printed.
    assert [answer["result"].get("sequence") for answer in answers if "sequence" in answer["result"]] == [2, 6]
