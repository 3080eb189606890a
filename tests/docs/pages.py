"""Pages of Markdown as a reader takes them: blocks in order, with what stands around each."""

import dataclasses
import pathlib
import re
import shlex
import textwrap

ROOT = pathlib.Path(__file__).parents[2]
# What is run or read by a program, and what is compared with what that shows. A picture is only looked at.
CHECKED = {"sh", "python", "toml", "json"}
COMPARED = {"text"}
PICTURE = "picture"
# What no test can do here.
UNCHECKED = {"sql"}
# The line under a block that is not run or compared says so to the reader, and why.
NOT_RUN = re.compile(r"\s*\*Not (run|compared) by the tests: \S")
FENCED = re.compile(r"^( *)```(.*)\n((?:.*\n)*?)\1```$", re.M)


@dataclasses.dataclass
class Block:
    """One fenced block. `words` are those of its info string: file=NAME, terminal=NAME, until=TEXT, output, picture, policy=MODE."""

    page: pathlib.Path
    line: int
    language: str
    words: dict
    text: str
    runs: bool

    @property
    def place(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages():
    """Every page that a user reads, the pages of error codes left out: they have no blocks."""
    found = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "RELIABILITY.md", "CHANGELOG.md")]
    return found + sorted(ROOT.glob("docs/*.md")) + sorted(ROOT.glob("examples/**/README.md"))


def blocks(page):
    text = page.read_text()
    for found in FENCED.finditer(text):
        language, *words = shlex.split(found[2]) or [""]
        words = dict(word.partition("=")[::2] for word in words)
        line = text.count("\n", 0, found.start()) + 1
        runs = not NOT_RUN.match(text, found.end())
        yield Block(page, line, language, words, textwrap.dedent(found[3]), runs)


def prose(page):
    """The page without its blocks."""
    return FENCED.sub("", page.read_text())


def anchors(page):
    """The names of its headings in links, as GitHub makes them."""
    for title in re.findall(r"^#+ (.*)$", prose(page), re.M):
        kept = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", title).replace("`", ""))
        yield kept.lower().replace(" ", "-")
