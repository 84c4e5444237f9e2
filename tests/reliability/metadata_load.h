#pragma once

#include "client/client.h"
#include "tests/reliability/violations.h"

#include <atomic>
#include <map>
#include <random>
#include <string>

namespace crossmesh {

// A client that registers meshes and deletes some, and remembers what was acknowledged. Confined to
// its thread.
class MetadataLoad {
 public:
  // `violations` must outlive it. Names begin with `prefix`.
  MetadataLoad(Client client, std::string prefix, uint64_t seed, Violations& violations);

  // Until it is stopped.
  void Run(const std::atomic<bool>& stop);
  // Once the cluster is whole again: is all there that was acknowledged, and nothing that was
  // deleted?
  void Check();

  int acknowledged() const { return acknowledged_; }

 private:
  enum class Presence { kThere, kGone, kUnknown };

  void Create();
  void DeleteSome();

  Client client_;
  const std::string prefix_;
  std::mt19937_64 random_;
  Violations& violations_;
  std::map<std::string, Presence> meshes_;
  int acknowledged_ = 0;  // calls that changed something
};

}  // namespace crossmesh
