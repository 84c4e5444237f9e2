#pragma once

#include "common/base/digest.h"
#include "common/plan/indices.h"
#include "worker/executor/task.h"
#include "worker/gpu/executor/execution_agreement.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

class BoundLeg;
class Gpu;
class GpuEvent;
class GpuMemory;
class GpuStream;
class PreparedPart;
class RegisteredMemory;
struct BoundLists;
struct GpuLegs;

// The legs of a device, all bound to memory, with what they have together: lists on the GPU, arrays
// between them, and what ranks tell each other before the first. Made once, executed any number of
// times, one execution at a time; executing uploads and allocates nothing. Confined to the thread
// of its Gpu.
//
// Goes, as the tiles do, only when no execution of it is on the GPU any more.
class GpuBinding {
 public:
  // The ranks that must be in the communicator beside the own one, in the whole part's table,
  // ascending: all, those that it receives messages from, and those that it sends some to.
  struct Peers {
    std::vector<DeviceRank> all;
    std::vector<DeviceRank> senders;
    std::vector<DeviceRank> receivers;
  };

  // All lists are copied to the GPU in `upload`, on which there is nothing else. What
  // BoundLeg::Create says. `gpu` must outlive the binding.
  static absl::StatusOr<std::shared_ptr<GpuBinding>> Create(Gpu& gpu, GpuLegs legs,
                                                            const GpuStream& upload);
  // Waits for the copy, should it still be under way.
  ~GpuBinding();
  GpuBinding(const GpuBinding&) = delete;
  GpuBinding& operator=(const GpuBinding&) = delete;

  // The whole, of one device.
  const PreparedPart& part() const { return *part_; }
  DeviceRank device() const;
  const std::vector<BoundLeg>& legs() const { return legs_; }
  const Peers& peers() const { return peers_; }
  // Whether there is a leg of which all ranks of the communicator, or of groups of them, make the
  // same calls.
  bool is_of_group() const;
  // Whether these are collectives of courses, for which the communicator has all devices.
  bool has_collectives() const { return has_collectives_; }
  // As of GpuLegs: groups of devices of the whole part.
  using Splits = std::vector<std::vector<std::vector<DeviceRank>>>;
  const Splits& splits() const { return splits_; }
  // The most of a leg.
  int64_t staging_bytes() const;
  // Happens when the lists are on the GPU.
  GpuEvent& uploaded() { return *uploaded_; }

  // Makes ready for an execution.
  void Prepare(const TaskKey& key);
  // The report of the device, once all legs are done, as workers give it of host memory. What
  // CompareChecksums says.
  DeviceReport Compare() const;

  // What the device tells its peers, and what these told it: as peers().senders, or, in a group, by
  // rank of the communicator.
  std::span<const ExecutionAgreement> own_agreement() const { return agreements().first(1); }
  std::span<ExecutionAgreement> agreements_told() { return agreements().subspan(1); }
  int64_t agreements_told_count() const {
    return is_of_group() ? std::ssize(peers_.all) + 1 : std::ssize(peers_.senders);
  }
  RegisteredMemory& host_memory() { return *host_memory_; }

 private:
  explicit GpuBinding(const GpuLegs& legs);

  void ListPeers();
  absl::Status Upload(Gpu& gpu, const BoundLists& lists, const GpuStream& upload);
  std::span<ExecutionAgreement> agreements() const;
  int64_t agreement_bytes() const;

  const std::shared_ptr<const PreparedPart> part_;
  const Digest agreement_;
  const bool checksums_;
  const bool has_collectives_;
  const Splits splits_;
  const std::shared_ptr<const GpuMemory> arrays_;
  std::vector<BoundLeg> legs_;
  Peers peers_;
  // Agreements, the hashes of all legs, and the lists on their way to the GPU.
  std::unique_ptr<RegisteredMemory> host_memory_;
  std::unique_ptr<GpuMemory> lists_;
  std::unique_ptr<GpuEvent> uploaded_;
};

}  // namespace crossmesh
