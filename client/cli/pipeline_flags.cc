#include "client/cli/pipeline_flags.h"

#include "client/cli/cli.h"
#include "client/cli/options.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "planner/pipeline/planning/pipeline_codec.h"

#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::StatusOr<v1::PipelineSpec> ReadPipelineSpec(const std::string& file) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  v1::PipelineSpec spec;
  RETURN_IF_ERROR(FromJson(file, text, spec));
  return spec;
}

namespace {

using NumberedPair = std::pair<int32_t, int32_t>;

// Gives that time to all pairs of two stages of one rank that have none.
void AddPairs(double seconds, v1::PipelineSpec& spec) {
  std::set<NumberedPair> known;
  for (const v1::PipelinePair& pair : spec.pairs()) {
    known.emplace(pair.forward_stage(), pair.backward_stage());
  }
  for (int32_t forward = 0; forward < spec.stages_size(); ++forward) {
    for (int32_t backward = 0; backward < spec.stages_size(); ++backward) {
      const bool is_pair =
          forward != backward && spec.stages(forward).rank() == spec.stages(backward).rank();
      if (!is_pair || known.contains({forward, backward})) continue;
      v1::PipelinePair& pair = *spec.add_pairs();
      pair.set_forward_stage(forward);
      pair.set_backward_stage(backward);
      pair.set_seconds(seconds);
    }
  }
}

}  // namespace

void PipelineFlags::AddTo(CLI::App& command, const PipelineFlagsForm& form) {
  AddOption(command, "file", file_, "JSON file of the pipeline (PipelineSpec)")
      .Required(form.file_required);
  Option schedule =
      AddOption(command, "--schedule", schedules_,
                "auto (default), a name such as 1f1b, or a file FILE.json of a schedule");
  if (form.one_schedule) schedule.Expect(1);
  AddFlag(command, "--delay-weight-gradients", delay_weight_gradients_,
          "Split backward ops: the gradient of the weights comes after that of the input");
  AddOption(command, "--windows", windows_, "Of window_order, by stage: 5,3,1").SplitAt(',');
  AddOption(command, "--objective", objective_,
            "seconds (default): of an iteration; span: of a rank")
      .OneOf({"seconds", "span"});
  AddOption(command, "--transfer-model", transfer_model_,
            "What transfers share: ports (default), those that their plans use; latency, "
            "link, pair, nic; blocking: ranks do nothing else meanwhile")
      .OneOf({"ports", "latency", "link", "pair", "nic", "blocking"});
  AddOption(command, "--search-ops", search_ops_max_, "Bounds the search of auto, in ops");
  if (!form.file_required) return;
  AddOption(
      command, "--pair-seconds", pair_seconds_,
      "Time of a forward op and a backward op of two stages of a rank, computed as one, where "
      "the file has none: dual_pipe and dual_pipe_v have such pairs")
      .NotNegative();
}

absl::StatusOr<v1::PipelineSpec> PipelineFlags::ReadSpec() const {
  ASSIGN_OR_RETURN(v1::PipelineSpec spec, ReadPipelineSpec(file_));
  if (pair_seconds_ > 0) AddPairs(pair_seconds_, spec);
  return spec;
}

absl::StatusOr<PipelineDescription> PipelineFlags::ReadDescription() const {
  ASSIGN_OR_RETURN(const v1::PipelineSpec spec, ReadSpec());
  for (int i = 0; i < spec.ranks_size(); ++i) {
    if (spec.ranks(i).mesh().empty()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(file_, ": ranks[", i,
                     "]: expected inline_mesh, since no controller is asked; found the name ",
                     spec.ranks(i).mesh()));
  }
  return At(file_, FromProto(spec, std::vector<std::shared_ptr<const Mesh>>(spec.ranks_size())));
}

absl::StatusOr<v1::PipelineChoice> PipelineFlags::Choice() const {
  return ChoiceOf(schedules_.empty() ? "" : schedules_.front());
}

absl::StatusOr<std::vector<v1::PipelineChoice>> PipelineFlags::Choices() const {
  std::vector<v1::PipelineChoice> choices;
  if (schedules_.empty()) {
    ASSIGN_OR_RETURN(choices.emplace_back(), Choice());
  }
  for (const std::string& schedule : schedules_) {
    ASSIGN_OR_RETURN(choices.emplace_back(), ChoiceOf(schedule));
  }
  return choices;
}

absl::StatusOr<v1::PipelineChoice> PipelineFlags::ChoiceOf(const std::string& schedule) const {
  v1::PipelineChoice choice;
  if (absl::EndsWith(schedule, ".json")) {
    ASSIGN_OR_RETURN(*choice.mutable_schedule_file(), ReadFile(schedule));
  } else {
    choice.set_schedule(schedule);
  }
  choice.set_delay_weight_gradients(delay_weight_gradients_);
  choice.mutable_windows()->Add(windows_.begin(), windows_.end());
  choice.set_objective(objective_);
  choice.set_transfer_model(transfer_model_);
  choice.set_search_ops_max(search_ops_max_);
  return choice;
}

}  // namespace crossmesh
