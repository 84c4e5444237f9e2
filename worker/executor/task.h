#pragma once

#include "common/base/digest.h"
#include "common/communicators/communicator_key.h"
#include "common/plan/indices.h"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

namespace crossmesh {

class PreparedPart;

// Names one run of one part, on the wire and in reports.
struct TaskKey {
  uint64_t operation = 0;
  uint64_t epoch = 0;     // of the controller that started it
  uint32_t plan = 0;      // of the operation: the attempt that made it; of a program: the transfer
  uint32_t instance = 0;  // replay of the plan

  // "operation 3 of epoch 5, plan 1, instance 0"
  std::string ToString() const {
    return absl::StrCat("operation ", operation, " of epoch ", epoch, ", plan ", plan,
                        ", instance ", instance);
  }

  friend auto operator<=>(const TaskKey&, const TaskKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const TaskKey& k) {
    return H::combine(std::move(h), k.operation, k.epoch, k.plan, k.instance);
  }
};

// The start of each tensor's tile in this process, by manifest index; null where the device holds
// nothing of it. Source tiles are only read.
struct BoundTiles {
  std::vector<std::byte*> tensor;
};

struct TaskPeer {
  std::string worker;   // its name, for blame
  std::string address;  // Transport::address() of its transport
};

struct TaskSpec {
  // A communicator over which some of the devices, which are GPUs, exchange their bytes.
  struct Communicator {
    CommunicatorKey key;
    std::vector<DeviceRank> devices;  // by rank of the communicator

    friend bool operator==(const Communicator&, const Communicator&) = default;
  };

  TaskKey key;
  uint64_t token_high = 0;
  uint64_t token_low = 0;
  std::shared_ptr<const PreparedPart> part;
  absl::flat_hash_map<DeviceRank, BoundTiles> sources;       // of this worker's devices
  absl::flat_hash_map<DeviceRank, BoundTiles> destinations;  // of this worker's devices
  // Devices whose source tiles are filled only while the task runs; HostTaskRunner::SourceHere
  // tells when.
  absl::flat_hash_set<DeviceRank> awaited_sources;
  std::vector<TaskPeer> peers;
  absl::flat_hash_map<DeviceRank, int32_t> peer_of_device;  // other workers' devices -> peers index
  std::vector<Communicator> communicators;  // each device is in one; empty: none is a GPU
  bool checksums = true;
  absl::Duration deadline = absl::Seconds(60);  // from Start
  absl::Duration stall_limit = absl::Seconds(5);
  // What a device both holds and needs is not copied: who waits for it reads it where it is.
  bool leaves_own = false;
  // Senders wait until the receiver at the other end of a channel says that it is there.
  bool receivers_say_ready = false;
};

// How one destination device came out. OK: every byte is in place and its checksums agree.
struct DeviceReport {
  DeviceRank device = 0;
  absl::Status status;
  int64_t bytes = 0;  // in place: of complete relays and copies, moved or not
  Digest digest;      // over the checksums of its relays, in plan order; zero with checksums off
};

// Where the time of a task went, on this worker's loop.
struct PhaseSeconds {
  double bind = 0;        // from Start to the first byte ready
  double move = 0;        // from the first byte to the last, wall time
  double pack = 0;        // of it: gathering into staging
  double unpack = 0;      // of it: scattering from staging, and copies inside the worker
  double checksum = 0;    // of it: hashing
  double first_byte = 0;  // to the first chunk on its way, from the last awaited source before it
};

// What went to one other worker.
struct LinkReport {
  std::string peer;
  int64_t sent_bytes = 0;   // payload
  double busy_seconds = 0;  // while something was under way that the peer had not taken
};

struct TaskReport {
  TaskKey key;
  absl::Status
      status;  // the first error that is this worker's own (cancel, deadline, memory), or OK
  std::vector<DeviceReport> devices;    // every destination device of this worker
  std::vector<std::string> lost_peers;  // workers blamed: gone, or stalled
  absl::Status first_loss = {};         // why the first of them is lost; kept from the controller
  int64_t sent_bytes = 0;               // payload to other workers
  int64_t received_bytes = 0;           // payload from other workers
  int64_t copied_bytes = 0;             // between devices of this worker
  PhaseSeconds seconds;
  std::vector<LinkReport> links;  // by peer, those to which anything was to be sent
  // Devices of this worker whose communicators can no longer be used, or were not there; in the
  // order in which that was seen.
  std::vector<DeviceRank> broken_devices = {};
  // The libraries that moved bytes between GPUs, with their versions, as they name themselves;
  // sorted.
  std::vector<std::string> gpu_libraries = {};
  // Devices of this worker whose source tiles have given memory back.
  std::vector<DeviceRank> released_sources = {};
};

// Called on the executor's loop, never from inside Start, Cancel or PeerLost.
class TaskObserver {
 public:
  virtual ~TaskObserver() = default;
  // A destination device is complete or has failed; comes before OnTaskDone, once per device.
  virtual void OnDeviceDone(const TaskKey& key, const DeviceReport& report) = 0;
  // The last call for this task: no buffer of it is read or written any more.
  virtual void OnTaskDone(const TaskReport& report) = 0;
};

}  // namespace crossmesh
