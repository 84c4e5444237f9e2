#pragma once

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/testing/status_matchers.h"
#include "controller/dispatch/runnable_plan.h"
#include "controller/dispatch/running_pipeline.h"
#include "controller/dispatch/running_table.h"
#include "controller/dispatch/testing/dispatch_fixture.h"
#include "controller/dispatch/testing/fake_gateway.h"
#include "controller/dispatch/testing/sample_pipeline.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_split.h>
#include <gtest/gtest.h>

namespace crossmesh {

inline std::string CountingToken() {
  static int last = 0;
  return absl::StrFormat("%016d", ++last);
}

// Workers w-a to w-d, with a device each: the first two are rank 0, the others rank 1.
class RunningPipelineTest : public DispatchFixture {
 protected:
  RunningPipelineTest() {
    for (const char* host : kHosts) Join(host);
  }

  void LoseWorker(const std::string& host) {
    EndSession(host);
    running_.WithAll([name = absl::StrCat("w-", host)](RunningPipeline& run) {
      run.WorkerIsLost(name, absl::UnavailableError("its session ended"));
    });
    Run();
  }

  PipelineRequest Request(int64_t iterations) {
    PipelineRequest request;
    request.shown.set_id("pr-1");
    request.shown.set_iterations(iterations);
    request.shown.set_revision(1);
    request.resumption = "what was asked for";
    request.plan = [this](CancelCheck) -> PipelineRequest::Planned {
      ASSIGN_OR_RETURN(auto planned, PlanSample(spec_));
      return MakeRunnable(std::move(planned));
    };
    return request;
  }
  void Start(PipelineRequest request) {
    ASSERT_OK(running_.Start(std::move(request)));
    Run();
  }
  void StartIterations(int64_t iterations) { Start(Request(iterations)); }
  FakeProgramCall& At(const std::string& host) {
    auto* call = gateway_.Latest(absl::StrCat("at-", host));
    CHECK(call != nullptr) << "no call to worker " << host;
    return *call;
  }
  void AcceptAll() {
    for (const char* host : kHosts) At(host).Accept();
    Run();
  }
  // Ops begin at every 10 ms, a bit later on hosts that come later, and take 8 ms; messages take 3.
  void Report(const std::string& host, int64_t iteration) {
    const FakeProgramCall& call = At(host);
    const int64_t late = host[0] - 'a';
    v1::RunProgramResponse::IterationReport report;
    report.set_iteration(iteration);
    for (const auto& rank : call.program.ranks()) {
      auto& ops = *report.add_ops();
      ops.set_rank(rank.rank());
      const std::vector<std::string> actions = absl::StrSplit(rank.actions(), ' ');
      for (int64_t i = 0; i < std::ssize(actions); ++i) {
        ops.add_begin_ns(kHour + (10 * i + late) * kMillisecond);
        ops.add_end_ns(kHour + (10 * i + 8 + late) * kMillisecond);
      }
    }
    for (int i = 0; i < call.program.transfers_size(); ++i) {
      const bool sends =
          call.program.transfers(i).backward() == (call.program.ranks(0).rank() == 1);
      auto& transfer = *report.add_transfers();
      transfer.set_transfer(i);
      for (int64_t m = 0; m < 2; ++m) {
        transfer.add_produced_ns(sends ? kHour + (10 * m + 8 + late) * kMillisecond : 0);
        transfer.add_first_byte_ns(sends ? kMillisecond : 0);
        transfer.add_arrived_ns(sends ? 0 : kHour + (10 * m + 11 + late) * kMillisecond);
      }
    }
    call.Report(std::move(report));
    Run();
  }
  void ReportAll(int64_t iteration) {
    for (const char* host : kHosts) Report(host, iteration);
  }
  void Fail(const std::string& host, int64_t iteration, const std::string& message,
            const std::string& position) {
    v1::RunProgramResponse::IterationReport report;
    report.set_iteration(iteration);
    report.set_code(static_cast<int32_t>(absl::StatusCode::kAborted));
    report.set_message(message);
    report.add_positions(position);
    At(host).Report(std::move(report));
    Run();
  }
  void EndAll() {
    for (const char* host : kHosts) At(host).End(absl::OkStatus());
    Run();
  }
  void StopAfterIteration() {
    running_.With("pr-1", [](RunningPipeline& run) { run.Stop(/*now=*/false, "a test says so"); });
  }
  const v1::PipelineRun& Latest() { return sink_.latest.at("pr-1"); }

  static constexpr const char* kHosts[] = {"a", "b", "c", "d"};
  static constexpr int64_t kMillisecond = 1'000'000;
  static constexpr int64_t kHour = 3'600'000 * kMillisecond;

  v1::PipelineSpec spec_ = SamplePipeline({4, 4});
  FakeGateway<FakeProgramCall> gateway_;
  FakeSink<v1::PipelineRun> sink_;
  JobNumbers numbers_{7};
  RunningTable<RunningPipeline> running_{{.gateway = gateway_,
                                          .workers = registry_,
                                          .queue = queue_,
                                          .planners = planners_,
                                          .clock = clock_,
                                          .sink = sink_,
                                          .numbers = numbers_,
                                          .epoch = 7,
                                          .new_token = &CountingToken}};
};

}  // namespace crossmesh
