"""Sees that every link from a page of the packaged documentation leads to a file that is packaged with it. Its argument: the directory."""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1]).resolve()
pages = sorted(root.rglob("*.md"))
broken = []
for page in pages:
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        path = target.partition("#")[0]
        if path and not re.match(r"[a-z]+:", target) and not (page.parent / path).exists():
            broken.append(f"{page.relative_to(root)}: there is no {target}")
for link in broken:
    print(link)
# Whoever unpacks too little finds no broken links.
if broken or len(pages) < 20:
    sys.exit(f"{len(broken)} broken links on {len(pages)} pages")
print(f"no broken links on {len(pages)} pages")
