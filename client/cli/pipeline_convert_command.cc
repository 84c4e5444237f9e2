#include "client/cli/cli.h"
#include "client/cli/options.h"
#include "client/cli/picture.h"
#include "client/cli/pipeline_picture.h"
#include "common/base/count_text.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "planner/pipeline/formats/pipeline_trace.h"
#include "planner/pipeline/formats/placed_ops.h"
#include "planner/pipeline/formats/schedule_csv.h"
#include "planner/pipeline/formats/schedule_file.h"
#include "planner/pipeline/formats/shape.h"
#include "planner/pipeline/timeline.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

constexpr char kJson[] = "json", kCompute[] = "csv-compute", kComms[] = "csv-comms",
               kTrace[] = "trace", kSvg[] = "svg";

struct ConvertFlags {
  std::string from_file;
  std::string to_file;
  std::string from;
  std::string to;
};

bool IsPicture(const std::string& format) {
  return format == kSvg || format == "png" || format == "pdf";
}

// CSV does not say which dialect it is in, and a trace is JSON as well: these must be named.
absl::StatusOr<std::string> FormatOf(const std::string& flag, const std::string& named,
                                     const std::string& file) {
  if (!named.empty()) return named;
  if (absl::EndsWith(file, ".json")) return kJson;
  std::string ending = file.substr(file.rfind('.') + 1);
  if (IsPicture(ending)) return ending;
  return absl::InvalidArgumentError(absl::StrCat(
      file, ": expected --", flag, " with the format, since the name of the file does not say it"));
}

absl::StatusOr<ScheduleFile> ReadSchedule(const std::string& file, const std::string& format) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  if (format == kJson) return ParseScheduleFile(text);
  ASSIGN_OR_RETURN(Schedule schedule,
                   ParseScheduleCsv(text, format == kComms ? CsvDialect::kComputeComms
                                                           : CsvDialect::kComputeOnly));
  PipelineShape shape{.stage_ranks = StageRanks(schedule), .edges = ChainOf(schedule.stages)};
  return ScheduleFile{.shape = std::move(shape), .schedule = std::move(schedule)};
}

// A schedule has no times: each op takes 1 here, a whole backward op 2, and transfers nothing.
PipelineProfile UnitTimes(const ScheduleFile& file) {
  PipelineProfile profile =
      FreeProfile(file.shape, static_cast<RankIndex>(file.schedule.ranks.size()));
  for (StageProfile& stage : profile.stages) {
    stage.forward_seconds = stage.input_gradient_seconds = stage.weight_gradient_seconds = 1;
  }
  return profile;
}

absl::StatusOr<std::string> Written(const OpTable& ops, const std::string& format) {
  if (format == kJson) return ToScheduleFile(ops);
  if (format == kCompute) return ToScheduleCsv(ops, CsvDialect::kComputeOnly);
  if (format == kComms) return ToScheduleCsv(ops, CsvDialect::kComputeComms);
  // Only what shows times needs a schedule that can run.
  ASSIGN_OR_RETURN(const PipelineTimeline run, SimulatePipeline(ops, TransferModel::kLatency));
  if (format == kTrace) return PipelineTrace(ops, run).dump() + "\n";
  return PipelinePicture({{.title = "schedule", .ops = &ops, .run = &run}}, DrawnTime::kAny);
}

absl::StatusOr<std::string> Written(const ScheduleFile& file, const std::string& format) {
  const PipelineProfile profile = UnitTimes(file);
  ASSIGN_OR_RETURN(const OpTable ops, OpTable::Create(file.schedule, profile));
  return Written(ops, format);
}

absl::Status Convert(Cli& cli, const ConvertFlags& flags) {
  ASSIGN_OR_RETURN(const std::string from, FormatOf("from", flags.from, flags.from_file));
  ASSIGN_OR_RETURN(const std::string to, FormatOf("to", flags.to, flags.to_file));
  if (from == kTrace || IsPicture(from)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--from: expected ", kJson, ", ", kCompute, " or ", kComms, ", found ", from));
  }
  ASSIGN_OR_RETURN(const ScheduleFile file,
                   At(flags.from_file, ReadSchedule(flags.from_file, from)));
  ASSIGN_OR_RETURN(const std::string text, At(flags.to_file, Written(file, to)));
  RETURN_IF_ERROR(IsPicture(to) ? DrawPicture(text, flags.to_file)
                                : WriteFile(flags.to_file, text));
  return cli.Answer(
      nlohmann::json{{"file", flags.to_file}, {"format", to}},
      absl::StrCat(CountText(std::ssize(file.schedule.ranks), "rank", "ranks"), ", ",
                   CountText(file.schedule.stages, "stage", "stages"), ", ",
                   CountText(file.schedule.microbatches, "microbatch", "microbatches"), ": ",
                   flags.from_file, " (", from, ") to ", flags.to_file, " (", to, ")\n"));
}

}  // namespace

void AddPipelineConvertCommand(Cli& cli, CLI::App& group) {
  CLI::App& command = cli.AddCommand(
      group, "convert", "Writes a schedule in another format",
      "  crossmesh pipeline convert schedule.json schedule.csv --to csv-compute\n"
      "  crossmesh pipeline convert schedule.csv schedule.svg --from csv-comms\n"
      "CSV is PyTorch's, with compute only or with its communication as well. Traces and drawings "
      "have unit times.\n");
  const auto flags = std::make_shared<ConvertFlags>();
  const std::vector<std::string> formats = {kJson, kCompute, kComms, kTrace, kSvg};
  AddOption(command, "from_file", flags->from_file, "The schedule").Required();
  AddOption(command, "to_file", flags->to_file, "What is written").Required();
  AddOption(command, "--from", flags->from, "Its format; may be left out for .json").OneOf(formats);
  AddOption(command, "--to", flags->to,
            "Its format; may be left out for .json, .svg, .png and .pdf")
      .OneOf(formats);
  cli.Run(command, [&cli, flags] { return Convert(cli, *flags); });
}

}  // namespace crossmesh
