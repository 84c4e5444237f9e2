#include "client/python/extension/bindings.h"
#include "client/python/extension/json_text.h"
#include "common/mesh/json_reader.h"
#include "common/mesh/mesh.h"
#include "common/python/interruptible.h"
#include "common/python/raised_status.h"
#include "crossmesh/v1/pipeline.pb.h"
#include "planner/pipeline/planning/pipeline_codec.h"
#include "planner/pipeline/planning/planned_pipeline.h"

#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace crossmesh {
namespace nb = nanobind;
namespace {

void ReadJson(const char* what, const std::string& text, google::protobuf::Message& message) {
  OrRaise(ParseJson(what, text).status());
  const auto status = google::protobuf::util::JsonStringToMessage(text, &message);
  if (status.ok()) return;
  RaiseStatus(absl::InvalidArgumentError(absl::StrCat(what, ": expected the JSON of a ",
                                                      message.GetDescriptor()->name(), ", found ",
                                                      std::string(status.message()))));
}

struct PipelineRequest {
  PipelineDescription description;
  v1::PipelineChoice choice;
};

PipelineRequest RequestOf(const std::string& pipeline, const std::string& choice) {
  v1::PipelineSpec spec;
  ReadJson("pipeline", pipeline, spec);
  PipelineRequest request;
  ReadJson("choice", choice, request.choice);
  const std::vector<std::shared_ptr<const Mesh>> named(spec.ranks_size());
  request.description = OrRaise(FromProto(spec, named));
  return request;
}

std::string PlannedPipelineText(const std::string& pipeline, const std::string& choice) {
  PipelineRequest request = RequestOf(pipeline, choice);
  const auto planned = Interruptibly([&request](CancelCheck cancelled) {
    return PlanPipeline(std::move(request.description), request.choice, cancelled);
  });
  return JsonTextOf(planned->Summary());
}

std::vector<std::string> ComparedTexts(const std::string& pipeline, const std::string& choice) {
  const PipelineRequest request = RequestOf(pipeline, choice);
  const auto candidates = Interruptibly([&request](CancelCheck cancelled) {
    return ComparePipelineSchedules(request.description, request.choice, cancelled);
  });
  std::vector<std::string> texts;
  for (const v1::PipelineCandidate& candidate : candidates) texts.push_back(JsonTextOf(candidate));
  return texts;
}

}  // namespace

void BindSchedules(nb::module_& module) {
  module.def(
      "plan_pipeline", &PlannedPipelineText, nb::arg("pipeline"), nb::arg("choice"),
      "The schedule of a pipeline, as the JSON of a PipelinePlan; both arguments are JSON, of "
      "a PipelineSpec and a PipelineChoice.");
  module.def("compare_schedules", &ComparedTexts, nb::arg("pipeline"), nb::arg("choice"),
             "The JSON of a PipelineCandidate for every schedule.");
}

}  // namespace crossmesh
