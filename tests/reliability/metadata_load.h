#pragma once

#include "client/client.h"
#include "tests/reliability/load.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <random>
#include <string>

namespace crossmesh {

// A client that registers meshes and deletes some, and remembers what was acknowledged. Confined to
// its thread.
class MetadataLoad final : public Load {
 public:
  // Names begin with `prefix`.
  MetadataLoad(const LoadEnvironment& environment, std::string prefix, uint64_t seed);

  void Run(const std::atomic<bool>& stop) override;
  void Check() override;
  std::string Summary() const override;

 private:
  enum class Presence { kThere, kGone, kUnknown };

  void Create();
  void DeleteSome();

  const LoadEnvironment environment_;
  Client client_;
  const std::string prefix_;
  std::mt19937_64 random_;
  std::map<std::string, Presence> meshes_;
  int acknowledged_ = 0;  // calls that changed something
};

}  // namespace crossmesh
