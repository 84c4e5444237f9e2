// Runs of pipelines by the real programs.

#pragma once

#include "common/base/status_macros.h"
#include "common/testing/status_matchers.h"
#include "tests/live/chain_pipeline.h"
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
