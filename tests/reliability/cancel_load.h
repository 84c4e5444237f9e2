#pragma once

#include "client/client.h"
#include "tests/live/reshard_case.h"
#include "tests/reliability/load.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>

namespace crossmesh {

// A client that begins one reshard after the other, and cancels each at a random moment, from
// before it is planned to when it may have ended. Workers are not restarted meanwhile.
class CancelLoad final : public Load {
 public:
  CancelLoad(const LoadEnvironment& environment, ReshardOptions options, uint64_t seed);

  void Run(const std::atomic<bool>& stop) override;
  void Check() override {}
  std::string Summary() const override;

 private:
  void Step();

  const LoadEnvironment environment_;
  const ReshardOptions options_;
  Client client_;
  std::mt19937_64 random_;
  std::unique_ptr<ReshardCase> reshard_;  // null until it first runs
  std::map<std::string, int> counts_;     // operations that ended, by their state
};

}  // namespace crossmesh
