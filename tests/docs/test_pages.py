"""Every block of every page does what the page says, in the order of the page; one that is not run says why to the reader."""

import json
import re
import time
import tomllib
import uuid

import pytest
from macp.v1.policy_pb2 import PolicyDescriptor
from macp_sdk import AuthConfig, MacpClient
from pages import CHECKED, COMPARED, PICTURE, ROOT, UNCHECKED, anchors, blocks, pages, prose
from reader import PATIENCE, Reader
from settings import servers_of, tools_of


def named(page):
    return str(page.relative_to(ROOT))


def work_of(page):
    """What there is to do on a page."""
    return [block for block in blocks(page) if block.runs and (block.language in CHECKED or "output" in block.words)]


@pytest.fixture
def reader(tmp_path):
    it = Reader(tmp_path)
    yield it
    it.ended()


def shows(text, terminal):
    """Each line of the text is shown, in order; an ellipsis stands for anything."""
    pattern = r"[^\n]*\n(?:.*\n)*?".join(
        ".*?".join(re.escape(part) for part in line.split("…")) for line in text.splitlines() if line.strip()
    )
    pattern = re.compile("^" + pattern, re.M)
    deadline = time.monotonic() + PATIENCE
    while not pattern.search(terminal.shown()):
        assert time.monotonic() < deadline, f"expected\n{text}\nfound\n{terminal.shown()}"
        time.sleep(0.05)


def run(reader, block):
    text = reader.local(block.text)
    terminal = reader.terminal(block.words.get("terminal", "first"))
    if "file" in block.words:
        saved = reader.place / block.words["file"]
        saved.parent.mkdir(parents=True, exist_ok=True)
        saved.write_text(text)
        saved.chmod(0o755)
    elif block.language == "sh":
        terminal.run(reader.typed(text), block.words.get("until"))
    elif block.language == "python":
        saved = reader.place / "block.py"
        saved.write_text(text)
        terminal.run(f"python {saved}")
    elif block.language == "toml":
        saved = reader.place / "block.toml"
        saved.write_text(text)
        if servers := servers_of(tomllib.loads(text)):
            connects(servers, reader)
        elif "[[token]]" in text:
            terminal.run(f"HANDOVER_IDENTITY_TOKENS={saved} handover doctor")
        else:
            terminal.run(f"handover serve --config {saved} --print-config")
    elif block.language == "json":
        if "policy" in block.words:
            registers(block.words["policy"], text, reader)
        else:
            connects(servers_of(json.loads(text)), reader)


def connects(servers, reader):
    """A host with these settings has the tools of the server."""
    assert servers, "expected settings of a host, found none: the line under the block says why it is not run"
    for server in servers:
        assert "delegate_task" in tools_of(server, reader.environment)


def registers(mode, rules, reader):
    """The server takes the rules of a policy for a mode, task or handoff."""
    port = reader.environment["HANDOVER_MACP"].partition(":")[2]
    client = MacpClient(target=f"127.0.0.1:{port}", allow_insecure=True, auth=AuthConfig.for_dev_agent("ops"))
    said = {"policy_id": f"page.{uuid.uuid4().hex}", "mode": f"macp.mode.{mode}.v1", "rules": rules.encode(), "schema_version": 1}
    answer = client.register_policy(PolicyDescriptor(**said))
    assert answer.ok, answer.error


@pytest.mark.parametrize("page", [page for page in pages() if work_of(page)], ids=named)
def test_a_page_does_what_it_says(page, reader):
    work = work_of(page)
    # A page that starts no server is read by somebody who has one.
    if not any(block.language == "sh" and "handover serve" in block.text for block in work):
        reader.serve()
    last = None
    for block in work:
        try:
            if "output" in block.words:
                shows(reader.local(block.text), last)
            else:
                run(reader, block)
                if block.language in ("sh", "python"):
                    last = reader.terminal(block.words.get("terminal", "first"))
        except AssertionError as error:
            raise AssertionError(f"{block.place}: {error}") from None


def test_make_run_and_make_demo_start_the_demo(reader):
    text = next(block.text for block in blocks(ROOT / "README.md") if "make demo" in block.text)
    run, demo = (line.partition("#")[0].strip() for line in text.splitlines())
    # In the repository, with data elsewhere; only the compilation is left out.
    reader.has_built()
    reader.terminal("server").run(f"cd {ROOT}; export HANDOVER_DATA={reader.place}/data; {run}", until="handover is ready")
    reader.terminal("demo").run(f"cd {ROOT}; {demo}", until="asks: Which region")


@pytest.mark.parametrize("page", pages(), ids=named)
def test_a_block_is_of_a_kind_that_is_known_here(page):
    for block in blocks(page):
        assert block.language in CHECKED | COMPARED | UNCHECKED, f"{block.place}: {block.language or 'no language'}"
        if block.language in COMPARED:
            known = "output" in block.words or PICTURE in block.words or not block.runs
            assert known, f"{block.place}: it is no output and no picture, and no line under it says why it is not compared"
        if block.language == "json":
            # One document, or one on each line.
            for document in block.text.splitlines() if "\n{" in block.text else [block.text]:
                json.loads(document)
        if block.language in UNCHECKED:
            assert not block.runs, f"{block.place}: no line under it says why it is not run"
        if name := block.words.get("file"):
            later = [other.text for other in blocks(page) if other.runs and "file" not in other.words]
            assert any(name in text for text in later), f"{block.place}: nothing uses {name}"


@pytest.mark.parametrize("page", [*pages(), *sorted(ROOT.glob("docs/errors/*.md"))], ids=named)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{named(page)}: there is no {target}"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{named(page)}: there is no heading for {target}"


def test_the_summary_lists_every_page_once():
    listed = re.findall(r"\]\((.*?)\)", (ROOT / "docs/SUMMARY.md").read_text())
    assert len(set(listed)) == len(listed), "a page is listed twice"
    there = {path.name for path in ROOT.glob("docs/*.md")} - {"SUMMARY.md"}
    assert there == {target for target in listed if "/" not in target}
