#pragma once

#include "common/base/digest.h"
#include "common/plan/slicing.h"
#include "common/plan/step_collective.h"
#include "worker/executor/prepared_part.h"
#include "worker/gpu/compiler/chunk_message.h"
#include "worker/gpu/compiler/step_use.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// What one GPU does for a plan: its part, compiled to steps of launches and NCCL calls with all
// places in staging assigned. One GPU is one device of the plan and one rank. Address-free, so it
// runs any number of times, in any memory. Immutable; thread-safe.
//
// A step packs chunks from tiles to staging, sends and receives messages (chunk_message.h) between
// the stagings of devices in one group, and unpacks what it received from staging to tiles. A
// device that passes a chunk on sends it, in a later step, from where it was received. Copies from
// tiles to tiles of the same device are dealt out to the steps, in ranges of many chunks.
//
// In a broadcast group (common/plan/broadcast_groups.h) a step has broadcasts instead of sends and
// receives: each chunk goes from its root's staging to that of all others at a time, and nothing is
// passed on.
//
// A collective (common/plan/step_collective.h) is one step, of those devices of which it has
// groups: NCCL reads and writes the tiles, and in
// staging are hashes alone. Of an all-gather the device hashes what it is root of; NCCL gathers all
// tensors and then, in the same group, the hashes; and what has come is hashed where it is. What is
// added on its way has no hashes: the compiled part is one without checksums.
//
// Where NCCL M2N moves the tensors (common/plan/m2n_proof.h), the first step hashes what the device
// is root of, and has M2N move everything, after these hashes, which are sent in the second step.
// That hashes what is then in the tiles of this device. Without checksums there is no second step.
//
// Before all steps come the scales of source tiles that are sent as F8_E4M3: no source has memory
// for them, so they are computed to memory of the compiled part's own, and packed from there.
//
// Both ends of a hop, and all of a broadcast, have it in the step of the same number. So groups
// cannot deadlock: all ranks can do the lowest step that is not done.
//
// Packs, transfers and unpacks have a stream each, on which they follow each other step by step.
// Within a step the transfers wait for its packs, and the unpacks for its transfers. All else that
// a step waits for, since it uses staging again, it says itself; nothing else is to be waited for.
// Waits that others imply are left out.
//
// Example: a root sends chunks 0, 1, 2 to this device, which passes them on: step 0 receives 0;
// step 1 receives 1 and sends 0; step 2 receives 2 and sends 1; step 3 sends 2. Each chunk's place
// is in use for two steps, so a staging of two places is enough: step 2 receives into the place of
// chunk 0, and its transfers wait for the unpacks of step 0.
class CompiledPart {
 public:
  struct Options {
    int64_t staging_bytes = 0;
    bool checksums = true;
    // How many steps may be under way at once without waiting for each other's places, if there is
    // staging for it.
    int32_t steps_ahead = 4;
    // What there is for the part as a step of a course.
    std::optional<GroupedCollective> collective = std::nullopt;
  };

  // [begin, end) of one of the lists.
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;

    int64_t size() const { return end - begin; }
    bool empty() const { return begin == end; }
    friend bool operator==(const Range&, const Range&) = default;
  };

  // Bytes [begin, end) of a class, from source tiles to staging; with checksums their hashes after
  // them.
  struct Pack {
    ClassIndex slice_class = kNoClass;
    int64_t begin = 0;
    int64_t end = 0;
    int64_t staging_offset = 0;
  };

  // One message to or from another rank, or from the root of a broadcast, which may be this one.
  struct Transfer {
    DeviceRank peer = 0;
    int64_t staging_offset = 0;
    int64_t bytes = 0;
    int64_t chunk_bytes = 0;  // of these: without the hashes
  };

  // Bytes [begin, end) of a class, from staging to destination tiles. With checksums the launch
  // also fills two lists that outlive the staging, both from `first_leaf` on: the hashes of what is
  // then in the tiles, and those of the root, which it copies from after the bytes. Copied there
  // and not by a call of its own, since calls are what a step must not cost.
  struct Unpack {
    ClassIndex slice_class = kNoClass;
    int64_t begin = 0;
    int64_t end = 0;
    int64_t staging_offset = 0;
    int64_t first_leaf = 0;
  };

  // Bytes [begin, end) of a class, from source tiles to destination tiles. Not hashed.
  struct Copy {
    ClassIndex slice_class = kNoClass;
    int64_t begin = 0;
    int64_t end = 0;
  };

  struct Step {
    int64_t number = 0;  // the same at all ranks; those in which a rank has nothing to do it lacks
    Range packs;
    Range sends;  // to one peer in the order in which that receives them
    Range receives;
    Range broadcasts;         // in the order in which all of the group have them
    Range unpacks;            // of what comes, in that order
    Range copies;             // at most one range of each class; they wait for nothing
    bool m2n = false;         // all tensors by M2N, in place of sends and receives
    bool collective = false;  // all of them by a collective
    // Indices of earlier steps, or kNoStep: before its packs run, the transfers or the unpacks up
    // to that step have ended; and before its transfers run, the unpacks.
    int32_t pack_after_wire = kNoStep;
    int32_t pack_after_unpack = kNoStep;
    int32_t wire_after_unpack = kNoStep;
  };

  // A relay that this device receives, and where its leaves begin in the lists of hashes.
  struct ReceivedRelay {
    int32_t node = 0;  // index into the part's nodes
    int64_t first_leaf = 0;
  };

  struct Lists {
    std::vector<Step> steps;
    std::vector<Pack> packs;
    std::vector<Transfer> sends;
    std::vector<Transfer> receives;
    std::vector<Transfer> broadcasts;
    std::vector<Unpack> unpacks;
    std::vector<Copy> copies;
    std::vector<ReceivedRelay> received;  // in plan order
    std::vector<DeviceRank> peers;        // ascending, as all that follow
    std::vector<DeviceRank> senders;
    std::vector<DeviceRank> receivers;
    std::vector<int32_t> scaled;      // as scaled()
    int64_t leaves = 0;               // of all relays received
    int64_t straight_sent_bytes = 0;  // as straight_sent_bytes(), straight_received_bytes()
    int64_t straight_received_bytes = 0;
    int64_t root_hashes_offset = 0;  // as root_hashes_offset()
  };

  // InvalidArgument: the part has not exactly one device, an option is negative, or a relay goes on
  // before it has come (message_schedule.h). ResourceExhausted: the messages of some step, with
  // those kept for a later one, do not fit into the staging; says how much it takes. Cost: that of
  // sorting what the device does with each chunk.
  static absl::StatusOr<std::shared_ptr<const CompiledPart>> Create(
      std::shared_ptr<const PreparedPart> part, const Options& options);

  const PreparedPart& part() const { return *part_; }
  const std::shared_ptr<const PreparedPart>& shared_part() const { return part_; }
  DeviceRank device() const { return part_->part().spec().devices.front(); }
  bool checksums() const { return options_.checksums; }
  int64_t staging_bytes() const { return options_.staging_bytes; }

  const std::vector<Step>& steps() const { return lists_.steps; }
  std::span<const Pack> packs(const Step& step) const { return In(lists_.packs, step.packs); }
  std::span<const Transfer> sends(const Step& step) const { return In(lists_.sends, step.sends); }
  std::span<const Transfer> receives(const Step& step) const {
    return In(lists_.receives, step.receives);
  }
  std::span<const Transfer> broadcasts(const Step& step) const {
    return In(lists_.broadcasts, step.broadcasts);
  }
  std::span<const Unpack> unpacks(const Step& step) const {
    return In(lists_.unpacks, step.unpacks);
  }
  std::span<const Copy> copies(const Step& step) const { return In(lists_.copies, step.copies); }

  // Tensors of which the device packs or copies elements as F8_E4M3, or scales: ascending indices
  // into the table's scaled_tensors. All scales of its source tiles of these are computed.
  const std::vector<int32_t>& scaled() const { return lists_.scaled; }

  const std::vector<ReceivedRelay>& received() const { return lists_.received; }
  // Of each of the two lists of hashes; 0 with checksums off.
  int64_t leaves() const { return options_.checksums ? lists_.leaves : 0; }
  // The ranks that must be in the communicator beside this one.
  const std::vector<DeviceRank>& peers() const { return lists_.peers; }
  // Of these, those that it receives messages from, and those that it sends some to.
  const std::vector<DeviceRank>& senders() const { return lists_.senders; }
  const std::vector<DeviceRank>& receivers() const { return lists_.receivers; }
  // Whether all ranks of the communicator, or of a group of them, make the same calls: broadcasts,
  // a collective's, or those of M2N.
  bool is_of_group() const { return is_straight() || !lists_.broadcasts.empty(); }
  bool is_m2n() const { return part_->part().spec().m2n; }
  const std::optional<GroupedCollective>& collective() const { return options_.collective; }
  // Of the collective, in which the device is; null: in none, so that it has nothing to do.
  const std::vector<DeviceRank>* group() const {
    return collective().has_value() ? collective()->GroupOf(device()) : nullptr;
  }
  // Whether NCCL reads and writes the tiles itself, and staging has hashes alone.
  bool is_straight() const { return is_m2n() || collective().has_value(); }
  // What the device then sends as the plan has it, which NCCL deals out by itself to all that have
  // the same bytes, and adds on its way; and what it receives.
  int64_t straight_sent_bytes() const { return lists_.straight_sent_bytes; }
  int64_t straight_received_bytes() const { return lists_.straight_received_bytes; }
  // Where the hashes of all roots then lie in staging, in the order of leaves.
  int64_t root_hashes_offset() const { return lists_.root_hashes_offset; }
  // What all ranks must agree on before the first group: the plan, how it is cut, whether there are
  // checksums.
  const Digest& agreement() const { return agreement_; }
  ChunkMessage MessageOf(int64_t chunk_bytes) const {
    return {
        .chunk_bytes = chunk_bytes, .checksums = options_.checksums, .has_bytes = !is_straight()};
  }

 private:
  CompiledPart(std::shared_ptr<const PreparedPart> part, const Options& options, Lists lists);

  template <typename T>
  static std::span<const T> In(const std::vector<T>& list, const Range& range) {
    return std::span(list).subspan(range.begin, range.size());
  }
  Digest ComputeAgreement() const;

  const std::shared_ptr<const PreparedPart> part_;
  const Options options_;
  const Lists lists_;
  const Digest agreement_;
};

}  // namespace crossmesh
