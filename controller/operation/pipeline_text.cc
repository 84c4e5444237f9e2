// Text of actions: scripts and logs.

#include "controller/operation/pipeline_machine.h"

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

struct ActionText {
  std::string operator()(const PipelineMachine::StartPrograms& a) const {
    return absl::StrCat("StartPrograms generation ", a.generation);
  }
  std::string operator()(const PipelineMachine::BeginIteration& a) const {
    return absl::StrCat("BeginIteration ", a.iteration);
  }
  std::string operator()(const PipelineMachine::StopPrograms& a) const {
    return a.reason.empty() ? "StopPrograms" : absl::StrCat("StopPrograms '", a.reason, "'");
  }
  std::string operator()(const PipelineMachine::CancelCall& a) const {
    return absl::StrCat("CancelCall ", a.worker);
  }
  std::string operator()(const PipelineMachine::AwaitWorkers&) const { return "AwaitWorkers"; }
  std::string operator()(const PipelineMachine::StartTimer& a) const {
    return absl::StrCat("StartTimer ", ToString(a.wait));
  }
  std::string operator()(const PipelineMachine::EndIteration& a) const {
    if (a.status.ok()) return absl::StrCat("EndIteration ", a.iteration, " OK");
    return absl::StrCat("EndIteration ", a.iteration, " ",
                        absl::StatusCodeToString(a.status.code()), " ", a.status.message());
  }
  std::string operator()(const PipelineMachine::Publish&) const { return "Publish"; }
  std::string operator()(const PipelineMachine::Finish&) const { return "Finish"; }
};

}  // namespace

std::string ToString(const PipelineMachine::Action& action) {
  return std::visit(ActionText(), action);
}

absl::string_view ToString(PipelineMachine::Wait wait) {
  switch (wait) {
    case PipelineMachine::Wait::kWorkers:
      return "workers";
    case PipelineMachine::Wait::kStart:
      return "start";
    case PipelineMachine::Wait::kIteration:
      return "iteration";
    case PipelineMachine::Wait::kEnd:
      return "end";
  }
  return "unknown";
}

}  // namespace crossmesh
