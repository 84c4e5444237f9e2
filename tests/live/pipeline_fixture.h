// Runs of pipelines by the real programs.

#pragma once

#include "common/base/status_macros.h"
#include "common/testing/status_matchers.h"
#include "tests/live/following.h"
#include "tests/live/live_cluster.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gtest/gtest.h>

namespace crossmesh {

inline constexpr absl::Duration kBeginMax = absl::Seconds(20);
// From a loss to the end of the iteration, with a stall limit of a second.
inline constexpr absl::Duration kFailMax = absl::Seconds(15);

// A chain of stages, one for each host, the last one also with what the first one has.
inline v1::PipelineSpec SpecOf(const std::vector<std::string>& hosts, double seconds) {
  v1::PipelineSpec spec;
  spec.set_name("chain");
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    v1::Mesh& mesh = *spec.add_ranks()->mutable_inline_mesh();
    mesh.set_axes("x=1");
    mesh.set_devices(absl::StrCat(hosts[rank], ".0"));
    v1::PipelineStage& stage = *spec.add_stages();
    stage.set_rank(static_cast<int32_t>(rank));
    stage.set_forward_seconds(seconds);
    stage.set_input_gradient_seconds(seconds);
    stage.set_weight_gradient_seconds(seconds);
    v1::Host& host = *spec.mutable_topology()->add_hosts();
    host.set_name(hosts[rank]);
    v1::Nic& nic = *host.add_nics();
    nic.set_name("eth0");
    nic.set_out_bytes_per_second(1'250'000'000);
    nic.set_in_bytes_per_second(1'250'000'000);
  }
  const auto add_edge = [&spec](int32_t from, int32_t to) {
    v1::PipelineEdge& edge = *spec.add_edges();
    edge.set_from(from);
    edge.set_to(to);
    v1::PipelineTensor& tensor = *edge.add_tensors();
    tensor.mutable_tensor()->set_name(absl::StrCat("from_", from));
    tensor.mutable_tensor()->set_dtype("F32");
    tensor.mutable_tensor()->add_shape(2);
    tensor.mutable_tensor()->add_shape(128 << 10);
    tensor.set_batch_dimension(0);
    tensor.set_source_layout("[-, x]");
    tensor.set_destination_layout("[-, x]");
  };
  const auto last = static_cast<int32_t>(hosts.size()) - 1;
  for (int32_t stage = 0; stage < last; ++stage) add_edge(stage, stage + 1);
  if (last > 1) add_edge(0, last);
  v1::PipelineMicrobatches& many = *spec.add_microbatches();
  many.set_count(7);
  many.set_samples(2);
  v1::PipelineMicrobatches& uneven = *spec.add_microbatches();
  uneven.set_count(1);
  uneven.set_samples(1);
  return spec;
}

class PipelineTest : public testing::Test {
 protected:
  void StartCluster(const std::vector<std::string>& workers) {
    ASSERT_OK_AND_ASSIGN(cluster_, LiveCluster::Start({.workers = workers}));
  }

  static v1::StartPipelineRequest RequestFor(const v1::PipelineSpec& spec, int64_t iterations) {
    v1::StartPipelineRequest request;
    *request.mutable_inline_pipeline() = spec;
    request.mutable_choice()->set_schedule("eager_1f1b");
    request.set_request_id(NewRequestId());
    request.set_iterations(iterations);
    request.set_rehearsal(true);
    request.mutable_stall_limit()->set_seconds(1);
    return request;
  }

  std::unique_ptr<Following<v1::PipelineRun>> Run(const v1::StartPipelineRequest& request) {
    return std::make_unique<Following<v1::PipelineRun>>(
        [address = cluster_->controller_address(), request](
            Following<v1::PipelineRun>::OnChange on_change) -> absl::StatusOr<v1::PipelineRun> {
          ASSIGN_OR_RETURN(Client client, Client::Connect(address, {}));
          return client.StartPipeline(request, on_change);
        });
  }

  static int64_t Complete(const v1::PipelineRun& run) {
    return std::ranges::count_if(run.done(),
                                 [](const auto& iteration) { return iteration.error().empty(); });
  }
  // The second iteration runs, in all probability.
  static void WaitForFirst(Following<v1::PipelineRun>& run) {
    ASSERT_OK(run.WaitFor([](const v1::PipelineRun& now) { return Complete(now) >= 1; }, kBeginMax)
                  .status());
  }
  static v1::PipelineRun WaitForFailure(Following<v1::PipelineRun>& run) {
    const auto failed = run.WaitFor(
        [](const v1::PipelineRun& now) { return now.failed_iterations() >= 1; }, kFailMax);
    EXPECT_OK(failed.status());
    return failed.ok() ? *failed : v1::PipelineRun();
  }
  static std::string ErrorOf(const v1::PipelineRun& run) {
    for (const v1::PipelineIteration& iteration : run.done()) {
      if (!iteration.error().empty()) return iteration.error();
    }
    return "";
  }

  std::unique_ptr<LiveCluster> cluster_;
};

}  // namespace crossmesh
