#pragma once

#include "common/base/digest.h"
#include "common/plan/packed_segments.h"
#include "common/plan/slicing.h"
#include "common/plan/worker_part.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// A worker's part made ready to run any number of times: proven, its slices expanded, its channels
// and relays indexed. Address-free. Immutable; thread-safe; shared by the tasks that replay it.
// Holds no bindings.
//
// A node is a relay at one of this worker's devices: its root, or one that receives it. A channel
// begins here, ends here, or both; its entries are the relays that go through it, in order.
//
// Every message of a channel has a sequence number that both ends know beforehand. 0 opens the
// channel; an entry has one number for each chunk and one for its end; `end_sequence` comes
// after the last entry. Example: two relays of 3 and 1 chunks have chunks 1, 2, 3, the end 4, chunk
// 5 and the end 6, so end_sequence is 7.
class PreparedPart {
 public:
  struct Node {
    int64_t relay = 0;  // index in the plan
    ClassIndex slice_class = kNoClass;
    DeviceRank device = 0;
    bool root = false;
    int64_t begin = 0;  // of the packed bytes of the class
    int64_t end = 0;
    DueTime due;
    int32_t chunks = 0;
    int32_t leaves = 0;
    int64_t first_cut = 0;    // cuts_[first_cut .. first_cut + chunks]
    int64_t first_chunk = 0;  // in a numbering of the chunks of all nodes
    int64_t first_leaf = 0;   // in a numbering of the leaves of all nodes
    int64_t first_out = 0;    // outs()[first_out .. first_out + out_count)
    int32_t out_count = 0;

    int64_t bytes() const { return end - begin; }
  };

  // A byte range of a relay, in packed bytes of its class, and of its leaves.
  struct Chunk {
    int64_t begin = 0;
    int64_t end = 0;
    int32_t first_leaf = 0;
    int32_t leaf_count = 0;

    int64_t bytes() const { return end - begin; }
  };

  struct Entry {
    int32_t from_node = -1;  // none when the channel begins at another worker
    int32_t to_node = -1;    // none when the channel ends at another worker
    // How many chunks must have come after a chunk before it goes on: the periods of the hop beyond
    // the one that the data edge costs.
    int32_t lag = 0;
    int64_t first_sequence = 0;
  };

  enum class Reach : uint8_t { kLocal, kOut, kIn };

  struct Channel {
    ChannelIndex id = 0;
    DeviceRank from = 0;
    DeviceRank to = 0;
    Reach reach = Reach::kLocal;
    int64_t first_entry = 0;  // entries()[first_entry .. first_entry + entry_count)
    int32_t entry_count = 0;
    int64_t end_sequence = 0;
    Digest order;  // as both ends see it

    // The device of another worker, where there is one.
    std::optional<DeviceRank> remote_end() const;
  };

  // Where the chunks of a node go on.
  struct Out {
    int32_t channel = 0;  // index into channels()
    int32_t entry = 0;    // of the channel
    friend auto operator<=>(const Out&, const Out&) = default;
  };

  struct Copy {
    ClassIndex slice_class = kNoClass;
    DeviceRank device = 0;
  };

  // Of a course of the part, its steps.
  using Steps = std::vector<std::shared_ptr<const PreparedPart>>;

  // How a device of this worker holds its tiles.
  struct DeviceTiles {
    TileMap source;
    TileMap destination;
  };

  // How many bytes preparing the part and so many executions at a time take beside tiles and
  // staging, nearly: what grows with chunks, leaves, channels, tensors and executions. Cost: linear
  // in relays and hops.
  static int64_t BytesFor(const WorkerPart& part, int32_t runs = 1);
  // What ProvePart refuses, with its codes. Cost: linear in the part and the cells in scope.
  static absl::StatusOr<std::shared_ptr<const PreparedPart>> Create(
      std::shared_ptr<const WorkerPart> part);

  const WorkerPart& part() const { return *part_; }
  const Slicing& slicing() const { return *slicing_; }
  int64_t chunk_bytes() const { return part_->spec().chunk_bytes; }

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Channel>& channels() const { return channels_; }
  std::span<const Entry> entries(const Channel& channel) const;
  std::span<const Out> outs(const Node& node) const;
  const std::vector<Copy>& copies() const { return copies_; }
  const std::vector<Steps>& courses() const { return courses_; }
  int64_t chunks() const { return chunks_; }
  int64_t leaves() const { return leaves_; }

  // Devices of this worker that receive something or could, ascending.
  const std::vector<DeviceRank>& destinations() const { return destinations_; }
  // `device` must be one of this worker's.
  const TileMap& tiles(Side side, DeviceRank device) const;
  // Index into channels(), or nothing when no such channel begins or ends here.
  std::optional<int32_t> FindChannel(ChannelIndex id) const;
  Chunk ChunkOf(const Node& node, int64_t chunk) const;

 private:
  PreparedPart(std::shared_ptr<const WorkerPart> part, std::unique_ptr<const Slicing> slicing);

  // Where a chunk begins; after the last one of a relay, where that ends.
  struct Cut {
    int64_t offset = 0;
    int32_t leaf = 0;
  };
  // A hop of the part with the relay it belongs to.
  struct RelayHop;
  class RelayCutter;
  void MakeTiles();
  std::vector<RelayHop> MakeNodes();
  Node CutRelay(const WorkerPart::PartRelay& relay, RelayCutter& cutter);
  int32_t MakeNode(Node node, DeviceRank device);
  void MakeChannels(std::vector<RelayHop> hops);
  void AddEntry(Channel& channel, const RelayHop& hop);
  void MakeOuts();
  absl::Status PrepareCourses();
  bool owns(DeviceRank device) const { return tiles_.contains(device); }

  std::shared_ptr<const WorkerPart> part_;
  std::unique_ptr<const Slicing> slicing_;
  absl::flat_hash_map<DeviceRank, std::unique_ptr<const DeviceTiles>> tiles_;
  std::vector<DeviceRank> destinations_;
  std::vector<Node> nodes_;
  std::vector<Cut> cuts_;
  std::vector<Channel> channels_;
  std::vector<Entry> entries_;
  std::vector<Out> outs_;
  std::vector<Copy> copies_;
  std::vector<Steps> courses_;
  absl::flat_hash_map<ChannelIndex, int32_t> channel_of_id_;
  int64_t chunks_ = 0;
  int64_t leaves_ = 0;
};

// For messages: "relay 7 at b.0" and "channel a.0 -> b.1".
std::string NameOf(const PreparedPart& part, const PreparedPart::Node& node);
std::string NameOf(const PreparedPart& part, const PreparedPart::Channel& channel);

}  // namespace crossmesh
