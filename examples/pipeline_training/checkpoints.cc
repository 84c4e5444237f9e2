#include "examples/pipeline_training/checkpoints.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <system_error>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

namespace crossmesh::training {

std::string Checkpoints::PathOf(StageIndex stage, int64_t iteration) const {
  return absl::StrCat(folder_, "/stage-", stage, ".", iteration);
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
        absl::SimpleAtoi(number, &iteration)) {
      iterations.push_back(iteration);
    }
  }
  std::ranges::sort(iterations);
  return iterations;
}

absl::Status Checkpoints::Write(StageIndex stage, int64_t iteration,
                                absl::string_view bytes) const {
  const std::string path = PathOf(stage, iteration), partial = path + ".partial";
  std::ofstream file(partial, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(partial, path, error);
  if (!file || error) return absl::InternalError(absl::StrCat("cannot write ", path));
  std::vector<int64_t> kept = IterationsOf(stage);
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

absl::StatusOr<std::string> Checkpoints::Read(StageIndex stage, int64_t iteration) const {
  const std::string path = PathOf(stage, iteration);
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("expected a checkpoint ", path));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void Checkpoints::GoBackTo(StageIndex stage, int64_t iteration) const {
  std::error_code error;
  for (const int64_t written : IterationsOf(stage)) {
    if (written > iteration) std::filesystem::remove(PathOf(stage, written), error);
  }
}

}  // namespace crossmesh::training
