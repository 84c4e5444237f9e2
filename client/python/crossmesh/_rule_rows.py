"""Layout rules as the API has them, one message each."""

from __future__ import annotations

import re

from crossmesh._core import Rules

# Explicit tiles have brackets inside, but no brace. What Rules has accepted has this form.
_RULE = re.compile(
    r"(?P<pattern>\S+)\s+(?P<layout>(?:\{[^}]*\}|\[[^\]]*\])(?:\s+(?!on\s|as\s)\w+)?)"
    r"(?:\s+on\s+(?P<on>.*?))?(?:\s+as\s+(?P<dtype>\w+))?$")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$")


def rule_rows(rules: Rules) -> list[dict[str, str]]:
    """Of every rule its pattern, layout, coordinates and type, the last two maybe empty."""
    rows = []
    for line in rules.text.split("\n"):
        match = _RULE.match(_COMMENT.sub("", line).strip())
        if match is not None:
            rows.append({key: value or "" for key, value in match.groupdict().items()})
    return rows
