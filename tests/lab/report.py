"""The lab's results as a Markdown document: with all figures, or only with what became of each run."""

import datetime
import pathlib
import sys

from measure import MEBI, CaseResult
from network import BURST_BYTES, QUEUE_SECONDS
from raw_stream import RawStream
from setting import Setting
from targets import OURS, Verdict

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "benchmark"))
from pages import aligned, machine


def percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1%}"


def ratio_text(value: float | None) -> str:
    return "failed" if value is None else f"{value:.3f}"


def relay_row(result: CaseResult) -> list[str]:
    runs = result.of(OURS)
    large = [error for run in runs if (error := run.large_error()) is not None]
    return [result.name, f"{result.busiest_bytes / MEBI:.0f} MiB", f"{result.chunk_bytes >> 10} KiB",
            f"{result.bound():.3f}", "failed" if not runs else f"{result.seconds(OURS):.3f}",
            ratio_text(result.ratio(OURS)), percent(result.prediction_error(OURS)),
            f"{max(large, key=abs):+.2%}" if large else "-",
            f"{max((run.small_excess() for run in runs), default=0) / MEBI:.2f} MiB", f"{result.signal * 1e3:.1f} ms"]


RELAY_HEADER = ["Case", "Busiest NIC", "Chunk", "Bound, s", "Time, s", "Time/bound", "Prediction", "Counted/planned",
                "Other directions", "Signal"]


def strategies_of(results: list[CaseResult]) -> list[str]:
    return list(dict.fromkeys(name for result in results for name in result.strategies()))


def ratio_rows(results: list[CaseResult]) -> tuple[list[str], list[list[str]]]:
    strategies = strategies_of(results)
    ways = list(dict.fromkeys(way for result in results for way in result.gloo))
    header = ["Case", *strategies, *(f"Gloo {way}" for way in ways)]
    rows = [[result.name, *(ratio_text(result.ratio(strategy)) for strategy in strategies),
             *(f"{result.gloo_ratio(way):.3f}" if way in result.gloo else "-" for way in ways)] for result in results]
    return header, rows


def prediction_rows(results: list[CaseResult]) -> tuple[list[str], list[list[str]]]:
    strategies = strategies_of(results)
    return ["Case", *strategies], [[result.name, *(percent(result.prediction_error(name)) for name in strategies)]
                                   for result in results]


def outcome_rows(results: list[CaseResult]) -> tuple[list[str], list[list[str]]]:
    strategies = strategies_of(results)

    def outcome(result: CaseResult, strategy: str) -> str:
        runs = [run for run in result.runs if run.strategy == strategy]
        return f"{sum(run.is_right() for run in runs)} of {len(runs)}"

    return ["Case", *strategies], [[result.name, *(outcome(result, name) for name in strategies)] for result in results]


def stream_lines(streams: dict[int, RawStream]) -> str:
    return "".join(f"- {rate} Mbit/s: {stream.rate_share:.4f} of the rate is payload, {stream.counted_share:.5f} bytes "
                   f"counted per byte\n" for rate, stream in streams.items())


def heading(results: list[CaseResult], setting: Setting) -> str:
    medians = "; times are medians" if setting.is_timed() else ""
    return f"""# {setting.title()}

Daemons in network namespaces with shaped NICs (`tests/lab`). {datetime.date.today()}, on {machine()}.
{setting.devices_text(results)}
All strategies take turns, {setting.rounds} times each{medians}. Made by

    {setting.command}
"""


def targets_section(verdicts: list[Verdict]) -> str:
    rows = [[verdict.what, verdict.target, verdict.measured, "met" if verdict.met else "**missed**"]
            for verdict in verdicts]
    return f"## Targets\n\n{aligned(['Figure', 'Target', 'Measured', 'Verdict'], rows)}"


def cases_section(results: list[CaseResult]) -> str:
    return "## Cases\n\n" + "".join(f"- `{result.name}`: {result.title}\n" for result in results)


def outcome_document(results: list[CaseResult], verdicts: list[Verdict], setting: Setting) -> str:
    """All of the report where times and counters of NICs mean nothing: it has none."""
    return f"""{heading(results, setting)}
{targets_section(verdicts)}
## Runs that committed with every element right

{aligned(*outcome_rows(results))}
{cases_section(results)}"""


def timed_document(results: list[CaseResult], verdicts: list[Verdict], streams: dict[int, RawStream],
                   setting: Setting) -> str:
    """All of the report where they do."""
    return f"""{heading(results, setting)}
![Time divided by the bound]({setting.name()}.svg)

{targets_section(verdicts)}
## `{OURS}`

{aligned(RELAY_HEADER, [relay_row(result) for result in results])}
- **Bound**: of the shaped rates, less what a raw TCP stream on a link of the same rate does not carry as payload,
  measured in this run (below). **Time**: the operation's, from planning to commit, checksums included.
- **Prediction**: (predicted - measured) / measured. **Counted/planned**: the kernel's counters of a NIC's direction
  against the plan's bytes and a raw stream's overhead; the direction with at least 64 MiB that is furthest off, of all
  rounds. **Other directions**: the most that the kernel counted over the plan in a direction with less.
- **Signal**: the same reshard of next to no bytes, plan cached, workers connected: what a transfer takes of which the
  network is no part. The single-byte bound of Zhuang et al. is this.

## Time divided by the bound, every strategy

{aligned(*ratio_rows(results))}
Gloo (where it ran): one process per device, in its host's namespace, over its first NIC; what goes where is known
before the clock starts, and nothing is checksummed (`tests/lab/gloo_move.py`).

## (predicted - measured) / measured, every strategy

{aligned(*prediction_rows(results))}
{cases_section(results)}
Raw streams, the best of three at each rate:

{stream_lines(streams)}
Ports are token buckets of {BURST_BYTES >> 10} KiB that queue {QUEUE_SECONDS * 1e3:.0f} ms, on both ends of a link. All hosts are one
machine, and rates are low, so that its cores are not what is measured. `{setting.name()}.json` has every run.
"""
