"""The results of the lab's redistributions: what they must be, and a document of them."""

import datetime
import itertools
import os
import re
import textwrap

from measure import MEBI
from raw_stream import RawStream
from redistribution_cases import COLLECTIVES, PAIRS, RATE, RATE_OF_FOUR
from redistribution_runs import RedistributionResult, Way
from report import aligned, machine, percent
from targets import Verdict, all_but

PREDICTION_ERROR_MAX = 0.10
DIFFERENT = 0.05  # of two times that are not called equal
BOUND_RATIO_MAX = 1.05
BYTES_ERROR_MAX = 0.02


def timed_ways(results: list[RedistributionResult], kind: str) -> list[tuple[RedistributionResult, Way]]:
    return [(result, way) for result in results if result.kind == kind and result.timed for way in result.ways
            if way.measured]


def pairs_apart(result: RedistributionResult) -> list[tuple[Way, Way]]:
    """Ways of which the first is predicted to be faster by more than a little."""
    measured = [way for way in result.ways if way.measured]
    return [(fast, slow) for fast, slow in itertools.permutations(measured, 2)
            if fast.predicted() < (1 - DIFFERENT) * slow.predicted()]


def run_targets(results: list[RedistributionResult]) -> list[Verdict]:
    ways = [(result, way) for result in results for way in result.ways]
    failed = [f"{way.names[0]} on {result.case}: {way.errors[0]}" for result, way in ways if way.errors]
    bytes_of = {f"{way.names[0]} on {result.case}": way.bytes_error() for result, way in ways
                if result.timed and way.bytes_error() is not None}
    worst = max(bytes_of, key=lambda name: abs(bytes_of[name]), default=None)
    found = [all_but("Plans that commit, with every element right", failed, len(ways))]
    if worst:
        found.append(Verdict("Bytes that the kernel counts on all NICs against bytes planned", "within 2 %",
                             f"{bytes_of[worst]:+.2%} ({worst})", abs(bytes_of[worst]) <= BYTES_ERROR_MAX))
    return found


def pair_targets(results: list[RedistributionResult]) -> list[Verdict]:
    ways = timed_ways(results, PAIRS)
    if not ways:
        return []
    far = [f"{way.names[0]} on {result.case}, {way.error():+.1%}" for result, way in ways
           if abs(way.error()) > PREDICTION_ERROR_MAX]
    pairs = [(result, *pair) for result in results if result.kind == PAIRS and result.timed
             for pair in pairs_apart(result)]
    wrong = [f"{fast.names[0]} and {slow.names[0]} on {result.case}" for result, fast, slow in pairs
             if fast.seconds() >= slow.seconds()]
    found = [all_but("Plans of two hosts of four devices whose time is within 10 % of the predicted one", far,
                     len(ways)),
             all_but("Pairs of plans that are predicted to differ by 5 % and more: measured in that order", wrong,
                     len(pairs))]
    beside = {result.case: way.seconds() / min(other.seconds() for other in result.ways if other.measured)
              for result, way in ways if "time" in way.names}
    if beside:
        worst = max(beside, key=beside.get)
        found.append(Verdict("`time`, beside the fastest plan of its case", f"at most {1 + DIFFERENT}",
                             f"{beside[worst]:.3f} ({worst})", beside[worst] <= 1 + DIFFERENT))
    for result, fast, slow in pairs:
        if "time" in fast.names and "bytes" in slow.names:
            found.append(Verdict(f"`bytes` on {result.case}: time / `time`", "above 1",
                                 f"{slow.seconds() / fast.seconds():.2f}, predicted "
                                 f"{slow.predicted() / fast.predicted():.2f}", slow.seconds() > fast.seconds()))
    return found


def collective_targets(results: list[RedistributionResult]) -> list[Verdict]:
    found = []
    for result, way in timed_ways(results, COLLECTIVES):
        ratio = way.seconds() / result.least_seconds
        found.append(Verdict(f"{result.case}: time / bandwidth bound", f"at most {BOUND_RATIO_MAX}", f"{ratio:.3f}",
                             ratio <= BOUND_RATIO_MAX))
    beside = {result.case: way.seconds() / raw for result, way in timed_ways(results, COLLECTIVES)
              if (raw := result.raw_seconds())}
    if beside:
        worst = max(beside, key=beside.get)
        found.append(Verdict("Collectives over hosts of one device: time / that of plain TCP between all pairs of "
                             "hosts", f"at most {BOUND_RATIO_MAX}", f"{beside[worst]:.3f} ({worst})",
                             beside[worst] <= BOUND_RATIO_MAX))
    for result, way in timed_ways(results, COLLECTIVES):
        if not result.raw:
            ratio = max(way.busiest) / result.least_bytes
            found.append(Verdict(f"{result.case}: bytes on the busiest NIC / least that crosses", "within 2 %",
                                 f"{ratio:.3f}", ratio <= 1 + BYTES_ERROR_MAX))
    return found


def verdicts(results: list[RedistributionResult]) -> list[Verdict]:
    return [*run_targets(results), *pair_targets(results), *collective_targets(results)]


def seconds_text(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.3f}" if seconds >= 0.1 else f"{seconds * 1e3:.1f} ms"


def steps_of(way: Way) -> str:
    """"1 tensor in 3 steps" to "3"; a relay is one."""
    search = way.summary.get("search", "")
    steps = re.search(r" tensors? in (\d+) step", search)
    return steps[1] if steps else "1"


def pair_section(result: RedistributionResult) -> str:
    rows = [[way.title(), steps_of(way), f"{way.planned_bytes() / 2 / MEBI:.1f} MiB" if result.timed else "-",
             seconds_text(way.predicted()), seconds_text(way.seconds()), percent(way.error()) if result.timed else "-",
             percent(way.bytes_error()) if result.timed else "-", seconds_text(way.model_seconds)]
            for way in result.ways]
    text = f"### {result.case}: {result.title}\n\n" + aligned(
        ["Plan", "Steps", "A NIC", "Predicted, s", "Measured, s", "Prediction", "Counted/planned", "Search's model, s"],
        rows)
    if not result.timed:
        text += "\nNext to nothing moves: what is measured is what any operation takes, which is not predicted.\n"
    refused = ", ".join(f"`{name}`" for name in result.refused)
    return text + (f"\nNo plan: {refused}.\n" if refused else "")


def collectives_table(results: list[RedistributionResult]) -> str:
    rows = []
    for result, way in timed_ways(results, COLLECTIVES):
        raw = result.raw_seconds()
        rows.append([result.case, f"{result.least_bytes / MEBI:.0f} MiB", f"{result.least_seconds:.3f}",
                     seconds_text(way.predicted()), seconds_text(way.seconds()), percent(way.error()),
                     f"{way.seconds() / result.least_seconds:.3f}",
                     f"{raw / result.least_seconds:.3f}" if raw else "-",
                     f"{max(way.busiest) / result.least_bytes:.3f}"])
    return aligned(["Collective", "A NIC, least", "Bound, s", "Predicted, s", "Measured, s", "Prediction", "Time/bound",
                    "Plain TCP/bound", "Counted/least"], rows)


def model_rows(results: list[RedistributionResult]) -> list[list[str]]:
    """Pairs of which the search's model calls the first one faster, which it was not."""
    rows = []
    for result in results:
        known = [way for way in result.ways if way.measured and way.model_seconds] if result.timed else []
        for fast, slow in itertools.permutations(known, 2):
            if fast.model_seconds < (1 - DIFFERENT) * slow.model_seconds and \
                    fast.seconds() > (1 - DIFFERENT) * slow.seconds():
                rows.append([result.case, fast.names[0], slow.names[0],
                             f"{slow.model_seconds / fast.model_seconds:.2f}",
                             f"{slow.seconds() / fast.seconds():.2f}"])
    return rows


def paragraph(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 120, break_on_hyphens=False, break_long_words=False) + "\n"


def document(results: list[RedistributionResult], command: str, rounds: int, streams: dict[int, RawStream]) -> str:
    shares = " and ".join(f"{stream.rate_share:.1%}" for stream in streams.values())
    opening = paragraph(
        f"""By `{command}`, {datetime.date.today()}, on {machine()}, with a load of {os.getloadavg()[2]:.0f} in the last
        quarter of an hour. {rounds} rounds in turns, medians of them; hosts as network namespaces of one machine, NICs
        of {RATE} Mbit/s, and of {RATE_OF_FOUR} where hosts have four devices, so that the cores have little to do
        beside; payloads get {shares} of that. Before its rounds each plan runs once for its elements, all of which are
        looked at. Times are those of operations, from planning to commit, with checksums. Each plan is measured once,
        whatever choices lead to it: `time` and `bytes` are the objectives of the search, with and without relays; the
        next four are the methods of the literature; `relay` is strategy relay. What is predicted, and why:
        [redistribution.md](../redistribution.md#carried-out).""")
    targets = aligned(["Target", "Wished", "Measured", ""],
                      [[verdict.what, verdict.target, verdict.measured, "met" if verdict.met else "**missed**"]
                       for verdict in verdicts(results)])
    text = (f"# Redistributions in the network lab\n\n{opening}\n![Predicted and measured](redistribution-lab.svg)\n\n"
            f"## Targets\n\n{targets}")
    if any(result.kind == PAIRS for result in results):
        text += "\n## Two hosts of four devices\n\n" + "\n".join(
            pair_section(result) for result in results if result.kind == PAIRS)
        text += "\n## The search's model beside\n\n" + paragraph(
            """The search prices a step as a collective: a ring at the slowest link, or messages to every peer, each
            device with its part of the NIC. Workers route it as a reshard: what several devices of a host need crosses
            its NIC once. So plans that the model calls slower, by 5 % and more, were as fast (measured ratio about 1)
            or faster (below 1):""")
        text += "\n" + aligned(["Case", "Faster by the model", "Slower", "Ratio by the model", "Measured"],
                               model_rows(results))
    if any(result.kind == COLLECTIVES for result in results):
        text += "\n## Collectives of 64 MiB\n\n" + collectives_table(results) + "\n" + paragraph(
            """**Bound**: of what must pass the busiest NIC in one direction. **Plain TCP**: streams between all pairs
            of hosts at once, with the bytes of the collective and nothing else to do; where several meet at a port,
            they lose what recovering from losses takes. `_fair`: ports keep a queue for each peer, as switches with
            virtual output queues do, and as the planner's ports share their rate. **Counted/least**: what the kernel counted on the busiest NIC,
            beside the least.""")
    return text
