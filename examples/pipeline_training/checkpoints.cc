#include "examples/pipeline_training/checkpoints.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

namespace crossmesh::training {
namespace {

constexpr absl::string_view kSuffix = ".safetensors";

}  // namespace

std::string Checkpoints::PathOf(StageIndex stage, int64_t iteration) const {
  return absl::StrCat(folder_, "/stage-", stage, ".", iteration, kSuffix);
}

std::vector<int64_t> Checkpoints::IterationsOf(StageIndex stage) const {
  std::vector<int64_t> iterations;
  std::error_code error;
  for (std::filesystem::directory_iterator file(folder_, error), end; !error && file != end;
       file.increment(error)) {
    const std::string name = file->path().filename().string();
    absl::string_view number = name;
    int64_t iteration = 0;
    // A file that is being written has another ending.
    if (absl::ConsumePrefix(&number, absl::StrCat("stage-", stage, ".")) &&
        absl::ConsumeSuffix(&number, kSuffix) && absl::SimpleAtoi(number, &iteration)) {
      iterations.push_back(iteration);
    }
  }
  std::ranges::sort(iterations);
  return iterations;
}

absl::Status Checkpoints::Write(StageIndex stage, int64_t iteration, int64_t steps,
                                std::span<const CheckpointBox> boxes) const {
  RETURN_IF_ERROR(WriteCheckpoint(PathOf(stage, iteration), steps, boxes));
  std::vector<int64_t> kept = IterationsOf(stage);
  std::error_code error;
  for (int64_t i = 0; i + 2 < std::ssize(kept); ++i) {
    std::filesystem::remove(PathOf(stage, kept[i]), error);
  }
  return absl::OkStatus();
}

int64_t Checkpoints::NewestOf(const std::vector<StageIndex>& stages) const {
  int64_t newest = std::numeric_limits<int64_t>::max();
  for (const StageIndex stage : stages) {
    const std::vector<int64_t> iterations = IterationsOf(stage);
    // Each has two, or is in its first iterations, and none is further ahead than by one: what one
    // has as its last all have.
    newest = std::min(newest, iterations.empty() ? -1 : iterations.back());
  }
  return newest;
}

int64_t Checkpoints::NewestBefore(StageIndex stage, int64_t iteration) const {
  int64_t newest = -1;
  for (const int64_t written : IterationsOf(stage)) {
    if (written < iteration) newest = std::max(newest, written);
  }
  return newest;
}

absl::StatusOr<CheckpointFiles> Checkpoints::Open(StageIndex stage, int64_t iteration) const {
  const std::string path = PathOf(stage, iteration);
  return CheckpointFiles::Open({&path, 1});
}

absl::StatusOr<CheckpointFiles> Checkpoints::OpenNewest(const std::string& folder,
                                                        StageIndex stage) {
  std::vector<Checkpoints> of_processes;
  int64_t newest = std::numeric_limits<int64_t>::max();
  std::error_code error;
  for (std::filesystem::directory_iterator process(folder, error), end; !error && process != end;
       process.increment(error)) {
    const Checkpoints& own = of_processes.emplace_back(process->path().string());
    newest = std::min(newest, own.NewestOf({stage}));
  }
  if (of_processes.empty() || newest < 0) {
    return absl::NotFoundError(
        absl::StrCat("expected folders with checkpoints of one iteration in ", folder));
  }
  std::vector<std::string> paths;
  for (const Checkpoints& own : of_processes) paths.push_back(own.PathOf(stage, newest));
  std::ranges::sort(paths);
  return CheckpointFiles::Open(paths);
}

void Checkpoints::GoBackTo(StageIndex stage, int64_t iteration) const {
  std::error_code error;
  for (const int64_t written : IterationsOf(stage)) {
    if (written > iteration) std::filesystem::remove(PathOf(stage, written), error);
  }
}

}  // namespace crossmesh::training
