"""What docs/python.md shows of clusters runs as it stands."""

import pathlib
import re

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "python.md"


def test_the_blocks_about_clusters_run():
    section = PAGE.read_text(encoding="utf-8").split("## A cluster's clients", 1)[1]
    blocks = re.findall(r"(?:^    .*\n|^\n)+", section, re.MULTILINE)
    code = [block for block in blocks if "import crossmesh" in block]
    assert code
    for block in code:
        exec("\n".join(line[4:] for line in block.split("\n")), {})  # the page of this repository
