#!/usr/bin/env python3
"""Pipeline schedules between PyTorch and Crossmesh, as the CSV files of PyTorch's runtime of schedules.

    pytorch_schedules.py write FOLDER   writes PyTorch's schedules, for planner/pipeline/formats/testdata/pytorch
    pytorch_schedules.py check FOLDER   has PyTorch load what `write_sample_schedules FOLDER` of Crossmesh wrote: it
                                        validates each file, adds transfers to what has none, and runs both kinds dry

Files are named NAME-R-S-M.DIALECT.csv, for ranks, stages, microbatches and compute_only or compute_comms. `check`
exits with 1 when PyTorch refuses one. Needs PyTorch: tests/benchmark/peers/setup installs it.
"""

import argparse
import pathlib
import sys
import types

import torch
from torch.distributed.pipelining import schedules as pytorch

DIALECTS = ("compute_only", "compute_comms")
# What PyTorch's dry run does not know, since it moves nothing between stages.
NOT_SIMULATED = (pytorch.UNSHARD, pytorch.RESHARD, pytorch.REDUCE_GRAD)
# name, class, stages of a rank
WRITTEN = (
    ("looped_bfs", pytorch.ScheduleLoopedBFS, 2),
    ("interleaved_1f1b", pytorch.ScheduleInterleaved1F1B, 2),
    ("interleaved_zero_bubble", pytorch.ScheduleInterleavedZeroBubble, 2),
    ("zbv_zero_bubble", pytorch.ScheduleZBVZeroBubble, 2),
    ("dual_pipe_v", pytorch.ScheduleDualPipeV, 2),
)
COUNTS = ((2, 4), (4, 8), (4, 12))  # ranks, microbatches


def stages_of(ranks: int, stages: int) -> list[types.SimpleNamespace]:
    """As much of PyTorch's stages as a schedule that is not run looks at: those of rank 0."""
    return [types.SimpleNamespace(stage_index=stage, num_stages=stages, group_size=ranks, group_rank=0, group=None,
                                  has_backward=True, submod=torch.nn.Identity(), is_first=stage == 0,
                                  is_last=stage == stages - 1)
            for stage in range(0, stages, ranks)]


def name_of(name: str, ranks: int, stages: int, microbatches: int, dialect: str) -> str:
    return f"{name}-{ranks}-{stages}-{microbatches}.{dialect}.csv"


def write(folder: pathlib.Path) -> None:
    for name, kind, per_rank in WRITTEN:
        for ranks, microbatches in COUNTS:
            stages = ranks * per_rank
            mock = stages_of(ranks, stages)
            if kind in (pytorch.ScheduleZBVZeroBubble, pytorch.ScheduleDualPipeV):
                mock[-1].stage_index = stages - 1  # stages go down the ranks and up again
            schedule = kind(mock, microbatches, loss_fn=lambda output, target: output)
            schedule._prepare_schedule_with_comms(schedule.pipeline_order)
            for dialect in DIALECTS:
                schedule._dump_csv(str(folder / name_of(name, ranks, stages, microbatches, dialect)), format=dialect)


def load(path: pathlib.Path) -> pytorch._PipelineScheduleRuntime:
    """What PyTorch makes of a file; raises what it says against it."""
    stem, dialect, _ = path.name.rsplit(".", 2)
    ranks, stages, microbatches = (int(text) for text in stem.split("-")[1:])
    schedule = pytorch._PipelineScheduleRuntime(stages_of(ranks, stages), microbatches,
                                                loss_fn=lambda output, target: output)
    schedule._load_csv(str(path), format=dialect)
    schedule.pipeline_order_with_comms = {
        rank: [action for action in actions if action.computation_type not in NOT_SIMULATED]
        for rank, actions in schedule.pipeline_order_with_comms.items()}
    schedule._simulate()
    return schedule


def check(folder: pathlib.Path) -> int:
    paths = sorted(folder.glob("*.csv"))
    failed = 0
    for path in paths:
        try:
            load(path)
        except Exception as error:  # whatever PyTorch raises is its answer
            failed += 1
            print(f"{path.name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    print(f"{len(paths) - failed} of {len(paths)} schedules load, are valid and run dry in PyTorch")
    return 1 if failed or not paths else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("write", "check"))
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    if options.action == "check":
        return check(options.folder)
    options.folder.mkdir(parents=True, exist_ok=True)
    write(options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
