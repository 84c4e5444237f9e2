"""Fails on a dashboard that a newcomer could not import and read.

    dashboard_names_test.py <repository root>

Every dashboard is JSON with unique panel ids; every panel has a title, a description, a unit and a legend; panels do
not overlap; every metric in a query is one of common/metrics/metric_names.h, and is selected by $job and $instance.
"""

import json
import pathlib
import re
import sys

METRIC = re.compile(r"\b((?:crossmesh|process|grpc_server)_[a-z0-9_]+)(\{[^}]*\})?")
SELECTED_BY = 'job=~"$job", instance=~"$instance"'
SUFFIXES = ("_bucket", "_count", "_sum")


def known_metrics(root: pathlib.Path) -> set[str]:
    text = (root / "common/metrics/metric_names.h").read_text()
    return set(re.findall(r'\{\s*"([a-z_0-9]+)"', text))


def without_suffix(name: str, known: set[str]) -> str:
    for suffix in SUFFIXES:
        if name not in known and name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def query_problems(expression: str, known: set[str]) -> list[str]:
    problems = []
    for name, selector in METRIC.findall(expression):
        if without_suffix(name, known) not in known:
            problems.append(f"metric {name} is not in common/metrics/metric_names.h")
        if SELECTED_BY not in selector:
            problems.append(f"metric {name} is not selected by {SELECTED_BY}")
    return problems or ([] if METRIC.search(expression) else ["query without a metric"])


def panel_problems(panel: dict, known: set[str]) -> list[str]:
    problems = [f"no {key}" for key in ("title", "description", "targets") if not panel.get(key)]
    if not panel["fieldConfig"]["defaults"].get("unit"):
        problems.append("no unit")
    if panel["datasource"]["uid"] != "${datasource}":
        problems.append("another data source than the variable")
    for target in panel["targets"]:
        problems += query_problems(target["expr"], known)
    return problems


def cells(panel: dict) -> set[tuple[int, int]]:
    place = panel["gridPos"]
    return {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}


def dashboard_problems(dashboard: dict, known: set[str]) -> list[str]:
    problems, ids, taken = [], set(), set()
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    if not {"datasource", "job", "instance"} <= variables:
        problems.append(f"variables: expected datasource, job and instance, found {sorted(variables)}")
    for panel in dashboard["panels"]:
        name = f"panel {panel['id']} \"{panel['title']}\""
        if panel["id"] in ids:
            problems.append(f"{name}: its id is taken")
        if taken & cells(panel):
            problems.append(f"{name}: lies over another panel")
        if max(x for x, _ in cells(panel)) >= 24:
            problems.append(f"{name}: is beyond the 24 columns")
        ids.add(panel["id"])
        taken |= cells(panel)
        if panel["type"] != "row":
            problems += [f"{name}: {problem}" for problem in panel_problems(panel, known)]
    return problems


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    known = known_metrics(root)
    paths = sorted((root / "dashboards").glob("*.json"))
    problems = [] if paths else ["no dashboard"]
    for path in paths:
        problems += [f"{path.name}: {problem}" for problem in dashboard_problems(json.loads(path.read_text()), known)]
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems in {len(paths)} dashboards, {len(known)} metrics known")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
