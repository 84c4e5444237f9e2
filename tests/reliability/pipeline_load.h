#pragma once

#include "client/client.h"
#include "tests/reliability/load.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

#include <absl/time/time.h>

namespace crossmesh {

// A client that runs one pipeline after the other over all workers: rehearsals, whose tensors are
// real. What it was told of an iteration never changes, whichever controller tells it.
class PipelineLoad final : public Load {
 public:
  explicit PipelineLoad(const LoadEnvironment& environment);

  void Run(const std::atomic<bool>& stop) override;
  void Check() override;
  std::string Summary() const override;

 private:
  // By index: is it complete?
  using Iterations = std::map<int64_t, bool>;

  void Step();
  void Note(const v1::PipelineRun& run, Iterations& told);
  void CheckEnd(const v1::PipelineRun& run, const Iterations& told);

  const LoadEnvironment environment_;
  Client client_;
  const v1::PipelineSpec pipeline_;
  std::map<std::string, v1::PipelineRun> ended_;  // by id
  std::map<std::string, int> counts_;             // by state
  int64_t complete_ = 0;                          // iterations
  int64_t failed_ = 0;
  int refused_ = 0;
  std::string why_;  // the last run that failed has
  absl::Duration longest_;
};

}  // namespace crossmesh
