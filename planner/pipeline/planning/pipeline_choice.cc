#include "planner/pipeline/planning/pipeline_choice.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/planning/refused.h"
#include "planner/pipeline/schedules/schedule_names.h"

#include <algorithm>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kWindowOrder = "window_order";

absl::Status DecodeSchedule(const v1::PipelineChoice& proto, PipelineChoice& choice) {
  if (!proto.schedule_file().empty()) {
    if (!proto.schedule().empty()) {
      return Refused("schedule: expected a name or a file, found \"", proto.schedule(),
                     "\" and a file");
    }
    choice.schedule.clear();
    choice.schedule_file = proto.schedule_file();
  } else if (!proto.schedule().empty()) {
    choice.schedule = proto.schedule();
    const std::vector<absl::string_view> names = ScheduleNames();
    if (choice.schedule != PipelineChoice::kAuto &&
        std::ranges::find(names, choice.schedule) == names.end()) {
      return Refused("schedule: expected ", PipelineChoice::kAuto, ", ", absl::StrJoin(names, ", "),
                     "; found \"", choice.schedule, "\"");
    }
  }
  choice.windows.assign(proto.windows().begin(), proto.windows().end());
  if (choice.windows.empty() || choice.schedule == kWindowOrder) return absl::OkStatus();
  return Refused("windows: expected schedule ", kWindowOrder, ", which alone has them, found \"",
                 choice.schedule, "\"");
}

absl::StatusOr<SearchObjective> DecodeObjective(const std::string& name) {
  if (name.empty() || name == "seconds") return SearchObjective::kSeconds;
  if (name == "span") return SearchObjective::kSpan;
  return Refused("objective: expected seconds or span, found \"", name, "\"");
}

absl::StatusOr<TransferModel> DecodeModel(const std::string& name) {
  if (name.empty()) return TransferModel::kPorts;
  const auto found = std::ranges::find(kAllTransferModels, name, [](TransferModel model) {
    return std::string(TransferModelName(model));
  });
  if (found != kAllTransferModels.end()) return *found;
  return Refused("transfer_model: expected ",
                 absl::StrJoin(kAllTransferModels, ", ",
                               [](std::string* out, TransferModel model) {
                                 absl::StrAppend(out, TransferModelName(model));
                               }),
                 "; found \"", name, "\"");
}

}  // namespace

absl::StatusOr<PipelineChoice> FromProto(const v1::PipelineChoice& proto) {
  PipelineChoice choice;
  RETURN_IF_ERROR(DecodeSchedule(proto, choice));
  if (proto.delay_weight_gradients()) choice.search.form = BackwardForm::kSplit;
  ASSIGN_OR_RETURN(choice.search.objective, DecodeObjective(proto.objective()));
  ASSIGN_OR_RETURN(choice.search.model, DecodeModel(proto.transfer_model()));
  if (proto.search_ops_max() < 0 || proto.search_ops_max() > PipelineChoice::kSearchOpsMax) {
    return Refused("search_ops_max: expected from 0 to ", PipelineChoice::kSearchOpsMax, ", found ",
                   proto.search_ops_max());
  }
  if (proto.search_ops_max() > 0) choice.search.ops_max = proto.search_ops_max();
  return choice;
}

}  // namespace crossmesh
