#pragma once

#include "client/client.h"
#include "tests/live/reshard_case.h"
#include "tests/reliability/load.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <absl/time/time.h>

namespace crossmesh {

// A client that asks for one reshard, or redistribution, after the other between the same storages,
// each of a new version of the source, and holds what it was told against what lies at the
// destination: a replica that committed has the version, one that failed has that or the one
// before, and none is mixed. Received in place, one that failed may also be dirty, and then says
// so.
class ReshardLoad final : public Load {
 public:
  ReshardLoad(const LoadEnvironment& environment, ReshardOptions options);

  void Run(const std::atomic<bool>& stop) override;
  void Check() override;
  std::string Summary() const override;

 private:
  // The memory of workers that were started again. False: some worker is away.
  bool Prepare();
  void Step();
  void CheckOutcome(const v1::Operation& operation, const std::map<std::string, int>& starts);
  void CheckReceiver(const v1::Operation& operation, const std::string& worker, bool committed);

  const LoadEnvironment environment_;
  const ReshardOptions options_;
  Client client_;
  std::unique_ptr<ReshardCase> reshard_;  // null until all workers are there
  std::map<std::string, int> prepared_;   // how often each was started when it was prepared
  // That lies at the destination, by worker; none: it is dirty.
  std::map<std::string, std::optional<uint8_t>> versions_;
  uint8_t version_ = 0;
  std::map<int, v1::Operation> ended_;  // by their place among those of all clients
  std::map<std::string, int> counts_;   // operations that ended, by their state
  int refused_ = 0;                     // that never began
  absl::Duration longest_;
};

}  // namespace crossmesh
