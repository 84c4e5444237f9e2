#pragma once

#include "common/testing/status_matchers.h"
#include "controller/testing/controller_fixture.h"
#include "crossmesh/v1/pipeline_service.grpc.pb.h"

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <gtest/gtest.h>

namespace crossmesh {

// The states of a run.
template <typename Response>
class RunReader : private StreamReader<Response> {
 public:
  using StreamReader<Response>::StreamReader;

  absl::StatusOr<v1::PipelineRun> Next() { return RunOf(StreamReader<Response>::Next()); }
  absl::StatusOr<v1::PipelineRun> Last() { return RunOf(StreamReader<Response>::Last()); }
  absl::StatusOr<v1::PipelineRun> NextIn(v1::PipelineRunState state) {
    while (true) {
      absl::StatusOr<v1::PipelineRun> run = Next();
      if (!run.ok() || run->state() == state) return run;
    }
  }

 private:
  static absl::StatusOr<v1::PipelineRun> RunOf(const absl::StatusOr<Response>& response) {
    if (!response.ok()) return response.status();
    return response->run();
  }
};
using StartReader = RunReader<v1::StartPipelineResponse>;
using WatchReader = RunReader<v1::WatchPipelineRunResponse>;

// Two ranks, on worker w-a and on workers w-b and w-c.
class ControllerPipelineTest : public ControllerFixture {
 protected:
  void SetUp() override {
    StartPipelineController();
    ASSERT_OK(CreateMesh("first", "x=2", "a.0-1"));
    ASSERT_OK(CreateMesh("second", "x=2", "b.0,c.0"));
  }

  void StartPipelineController() {
    StartController();
    pipelines_ = v1::PipelineService::NewStub(channel_);
  }
  void StartWorkers() {
    AddWorker("a", "a.0-1");
    AddWorker("b");
    AddWorker("c");
  }
  FakePrograms& Programs(size_t worker) { return workers_[worker]->programs(); }

  absl::Status CreatePipeline(const v1::PipelineSpec& spec) {
    v1::CreatePipelineRequest request;
    *request.mutable_pipeline() = spec;
    return Call(*pipelines_, &v1::PipelineService::Stub::CreatePipeline, request).status();
  }
  absl::Status Stop(const std::string& id, bool now) {
    v1::StopPipelineRunRequest request;
    request.set_id(id);
    request.set_now(now);
    return Call(*pipelines_, &v1::PipelineService::Stub::StopPipelineRun, request).status();
  }
  StartReader Start(const v1::StartPipelineRequest& request) {
    return StartReader([&](auto* context) { return pipelines_->StartPipeline(context, request); });
  }
  WatchReader Watch(const std::string& id) {
    v1::WatchPipelineRunRequest request;
    request.set_id(id);
    return WatchReader(
        [&](auto* context) { return pipelines_->WatchPipelineRun(context, request); });
  }
  // A run of which w-c does not complete the first iteration.
  StartReader StartHeld(const v1::StartPipelineRequest& request) {
    StartWorkers();
    Programs(2).SetManner(FakePrograms::Manner::kHolding);
    return Start(request);
  }

  static v1::PipelineSpec Spec() {
    v1::PipelineSpec spec;
    spec.set_name("two");
    for (const char* mesh : {"first", "second"}) {
      spec.add_ranks()->set_mesh(mesh);
      v1::PipelineStage& stage = *spec.add_stages();
      stage.set_rank(spec.stages_size() - 1);
      stage.set_forward_seconds(0.001);
      stage.set_input_gradient_seconds(0.001);
      stage.set_weight_gradient_seconds(0.001);
    }
    v1::PipelineEdge& edge = *spec.add_edges();
    edge.set_to(1);
    v1::PipelineTensor& tensor = *edge.add_tensors();
    tensor.mutable_tensor()->set_name("hidden");
    tensor.mutable_tensor()->set_dtype("F32");
    tensor.mutable_tensor()->add_shape(4);
    tensor.mutable_tensor()->add_shape(64);
    tensor.set_batch_dimension(0);
    tensor.set_source_layout("[x, -]");
    tensor.set_destination_layout("[-, x]");
    spec.add_microbatches()->set_count(4);
    spec.mutable_microbatches(0)->set_samples(4);
    return spec;
  }
  static v1::StartPipelineRequest Request(const std::string& id, int64_t iterations) {
    v1::StartPipelineRequest request;
    request.set_request_id(id);
    *request.mutable_inline_pipeline() = Spec();
    request.mutable_choice()->set_schedule("1f1b");
    request.set_iterations(iterations);
    request.set_rehearsal(true);
    return request;
  }

  std::unique_ptr<v1::PipelineService::Stub> pipelines_;
};

}  // namespace crossmesh
