"""What the pages of measurements have in common."""

import os
import pathlib
import re


def aligned(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table with columns of even width; the first to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows)]

    def line(cells: list[str]) -> str:
        padded = [cells[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:]))]
        return f"| {' | '.join(padded)} |\n"

    rule = "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
    return line(header) + f"|{rule}|\n" + "".join(map(line, rows))


def machine() -> str:
    model = re.search(r"^model name\s*: (.+)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{os.cpu_count()} cores, {model.group(1) if model else 'unknown processor'}"
