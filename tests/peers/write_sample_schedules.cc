// Writes schedules as PyTorch's CSV files, for pytorch_schedules.py: a hundred random draws of each
// published schedule whose stages are a chain, in both dialects.

#include "common/base/check.h"
#include "common/plan/testing/random_source.h"
#include "planner/pipeline/formats/placed_ops.h"
#include "planner/pipeline/formats/schedule_csv.h"
#include "planner/pipeline/formats/testing/sample_schedules.h"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>

namespace crossmesh {
namespace {

constexpr int kDraws = 100;

int WriteSampleSchedules(const std::filesystem::path& folder) {
  RandomSource random(1);
  int files = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    for (const SampleSchedule& sample : SampleSchedules(random)) {
      if (!sample.is_chain()) continue;
      const auto ranks = sample.schedule.ranks.size();
      const PipelineProfile profile = FreeProfile(sample.shape, static_cast<RankIndex>(ranks));
      const auto ops = OpTable::Create(sample.schedule, profile);
      CHECK_OK(ops);
      const std::string name =
          absl::StrCat(absl::StrReplaceAll(sample.name, {{" ", "_"}}), "_", draw, "-", ranks, "-",
                       sample.schedule.stages, "-", sample.schedule.microbatches);
      for (const auto& [dialect, suffix] :
           {std::pair(CsvDialect::kComputeOnly, "compute_only"),
            std::pair(CsvDialect::kComputeComms, "compute_comms")}) {
        const auto text = ToScheduleCsv(*ops, dialect);
        CHECK_OK(text);
        std::ofstream(folder / absl::StrCat(name, ".", suffix, ".csv")) << *text;
        ++files;
      }
    }
  }
  return files;
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_sample_schedules FOLDER\n");
    return 2;
  }
  std::filesystem::create_directories(argv[1]);
  std::printf("%d files\n", crossmesh::WriteSampleSchedules(argv[1]));
}
