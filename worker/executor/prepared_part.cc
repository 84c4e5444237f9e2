#include "worker/executor/prepared_part.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/plan/chunk_cuts.h"
#include "common/plan/course.h"
#include "common/plan/packed_segments.h"
#include "common/plan/plan.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <absl/container/flat_hash_set.h>
#include <absl/container/inlined_vector.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

struct PreparedPart::RelayHop {
  WorkerPart::PartHop hop;
  int32_t from_node = -1;
  int32_t to_node = -1;
  int32_t lag = 0;
};

// Relays of one class often follow each other, and the edges of a class cost a walk over all
// tensors.
class PreparedPart::RelayCutter {
 public:
  explicit RelayCutter(const PreparedPart& part) : part_(part) {}

  // Where the chunks of the node begin. Valid until the next call.
  const std::vector<int64_t>& Cut(const Node& node) {
    const int64_t chunks =
        RelayChunks(node.bytes(), node.due, part_.chunk_bytes(), part_.part().spec().periods);
    const int64_t chunk_bytes = (node.bytes() + chunks - 1) / chunks;
    auto& cuts = cuts_of_class_[{node.slice_class, chunk_bytes}];
    if (cuts == nullptr) {
      cuts = std::make_unique<const ChunkCuts>(part_.part_->tensors(), part_.slicing(),
                                               node.slice_class, chunk_bytes);
    }
    offsets_.clear();
    cuts->AppendCuts(node.begin, node.end, offsets_);
    return offsets_;
  }

 private:
  const PreparedPart& part_;
  // By class and size of chunks.
  absl::flat_hash_map<std::pair<ClassIndex, int64_t>, std::unique_ptr<const ChunkCuts>>
      cuts_of_class_;
  std::vector<int64_t> offsets_;
};

namespace {

// Of what an execution has, all but its nodes: itself, its channels and copies, and where tiles
// lie.
double RunBytesBesideNodes(const WorkerPart& part) {
  constexpr double kRunBytes = 4 << 10;
  constexpr double kMoverBytes = 2 << 10;
  // Up to three cursors, each of which walks to look, to move and to hash.
  constexpr double kWalks = 9;
  constexpr double kTileBytes = 2 * sizeof(std::byte*);
  const WorkerPart::Spec& spec = part.spec();
  absl::flat_hash_set<ChannelIndex> channels;
  for (const WorkerPart::PartHop& hop : spec.hops) channels.insert(hop.channel);
  const auto movers = static_cast<double>(channels.size() + spec.copies.size());
  const auto groups = static_cast<double>(part.tensors().groups().size());
  const auto tiles = static_cast<double>(spec.devices.size()) *
                     static_cast<double>(part.tensors().group_of_tensor().size());
  return kRunBytes +
         movers * (kMoverBytes + kWalks * (sizeof(PackedSegments) + groups * sizeof(int64_t))) +
         tiles * kTileBytes;
}

}  // namespace

// In floating point, since a part from the network may name far more than 2^63 bytes.
int64_t PreparedPart::BytesFor(const WorkerPart& part, int32_t runs) {
  // A vector that grows has its old memory and twice as much.
  constexpr double kCutBytes = 3 * sizeof(Cut);
  constexpr double kHopBytes = 3 * (sizeof(RelayHop) + sizeof(Entry) + sizeof(Out));
  constexpr double kNodeBytes = 3 * sizeof(Node);
  constexpr double kRunNodeBytes = 128;
  const WorkerPart::Spec& spec = part.spec();
  double run_bytes = RunBytesBesideNodes(part);
  double bytes = 0;
  for (const WorkerPart::PartRelay& relay : spec.relays) {
    const int64_t relay_bytes = relay.end - relay.begin;
    const double chunks = RelayChunks(relay_bytes, relay.due, spec.chunk_bytes, spec.periods);
    const double leaves = chunks + Plan::LeavesOf(relay_bytes);
    const auto hops = std::span(spec.hops).subspan(relay.first_hop, relay.hop_count);
    const auto nodes = 1 + std::ranges::count_if(hops, [&](const WorkerPart::PartHop& hop) {
                         return std::ranges::binary_search(spec.devices, hop.to);
                       });
    bytes += chunks * kCutBytes + relay.hop_count * kHopBytes + nodes * kNodeBytes;
    run_bytes += nodes * (kRunNodeBytes + leaves * sizeof(uint64_t));
  }
  // A step has an execution for each buffer, and at the ends of a course for each instance.
  for (const Course<WorkerPart>& course : part.courses()) {
    for (const Course<WorkerPart>::Step& step : course.steps) {
      bytes += static_cast<double>(BytesFor(*step.move, runs * course.instances));
    }
  }
  return static_cast<int64_t>(std::min(bytes + runs * run_bytes, 1e18));
}

absl::StatusOr<std::shared_ptr<const PreparedPart>> PreparedPart::Create(
    std::shared_ptr<const WorkerPart> part) {
  const std::vector<DeviceRank>& devices = part->spec().devices;
  // An empty scope would mean all devices, so a part without devices asks for the first one's.
  Slicing::Scope scope{.devices = devices};
  if (devices.empty()) scope.devices.push_back(0);
  ASSIGN_OR_RETURN(Slicing slicing, Slicing::Create(part->tensors(), scope));
  RETURN_IF_ERROR(ProvePart(*part, slicing));
  std::shared_ptr<PreparedPart> prepared(
      new PreparedPart(std::move(part), std::make_unique<const Slicing>(std::move(slicing))));
  prepared->MakeTiles();
  prepared->MakeChannels(prepared->MakeNodes());
  prepared->MakeOuts();
  RETURN_IF_ERROR(prepared->PrepareCourses());
  for (const WorkerPart::PartCopy& copy : prepared->part_->spec().copies) {
    prepared->copies_.push_back(
        {.slice_class = prepared->part_->ClassIn(prepared->slicing(), copy.class_sets),
         .device = copy.device});
  }
  return prepared;
}

PreparedPart::PreparedPart(std::shared_ptr<const WorkerPart> part,
                           std::unique_ptr<const Slicing> slicing)
    : part_(std::move(part)), slicing_(std::move(slicing)) {}

absl::Status PreparedPart::PrepareCourses() {
  for (const Course<WorkerPart>& course : part_->courses()) {
    Steps& steps = courses_.emplace_back();
    for (const Course<WorkerPart>::Step& step : course.steps) {
      ASSIGN_OR_RETURN(steps.emplace_back(), Create(step.move));
    }
  }
  return absl::OkStatus();
}

void PreparedPart::MakeTiles() {
  const TensorTable& tensors = part_->tensors();
  for (const DeviceRank device : part_->spec().devices) {
    tiles_.emplace(device, std::make_unique<const DeviceTiles>(DeviceTiles{
                               TileMap(tensors, *slicing_, Side::kSource, device),
                               TileMap(tensors, *slicing_, Side::kDestination, device)}));
    if (tensors.replica_of(device) >= 0 && part_->Serves(device)) destinations_.push_back(device);
  }
}

std::vector<PreparedPart::RelayHop> PreparedPart::MakeNodes() {
  std::vector<RelayHop> hops;
  RelayCutter cutter(*this);
  for (const WorkerPart::PartRelay& relay : part_->spec().relays) {
    const Node prototype = CutRelay(relay, cutter);
    // Nodes of this relay and the period by which each has a chunk.
    absl::InlinedVector<std::tuple<DeviceRank, int32_t, int32_t>, 8> nodes;
    const auto node_of = [&](DeviceRank device, int32_t period) {
      if (!owns(device)) return std::pair(-1, period);
      for (const auto& [known, node, since] : nodes) {
        if (known == device) return std::pair(node, since);
      }
      const int32_t node = MakeNode(prototype, device);
      nodes.emplace_back(device, node, period);
      return std::pair(node, period);
    };
    const std::span<const WorkerPart::PartHop> relay_hops =
        std::span(part_->spec().hops).subspan(relay.first_hop, relay.hop_count);
    // Receivers first: a hop's `to` says by when its device has the chunks that go on from there.
    for (const WorkerPart::PartHop& hop : relay_hops) node_of(hop.to, hop.period + 1);
    for (const WorkerPart::PartHop& hop : relay_hops) {
      const auto [from, since] = node_of(hop.from, hop.period);
      const int32_t to = node_of(hop.to, hop.period + 1).first;
      hops.push_back({hop, from, to, std::max(0, hop.period - since)});
    }
  }
  return hops;
}

// What the nodes of a relay have in common; its root in the place of their device.
PreparedPart::Node PreparedPart::CutRelay(const WorkerPart::PartRelay& relay, RelayCutter& cutter) {
  Node node{.relay = relay.relay,
            .slice_class = part_->ClassIn(*slicing_, relay.class_sets),
            .device = relay.root,
            .begin = relay.begin,
            .end = relay.end,
            .due = relay.due,
            .first_cut = std::ssize(cuts_)};
  CHECK(node.slice_class != kNoClass) << "relay " << relay.relay << " was proven to have a class";
  const std::vector<int64_t>& offsets = cutter.Cut(node);
  node.chunks = static_cast<int32_t>(offsets.size());
  for (size_t i = 0; i < offsets.size(); ++i) {
    cuts_.push_back({.offset = offsets[i], .leaf = node.leaves});
    const int64_t end = i + 1 < offsets.size() ? offsets[i + 1] : node.end;
    node.leaves += static_cast<int32_t>(Plan::LeavesOf(end - offsets[i]));
  }
  cuts_.push_back({.offset = node.end, .leaf = node.leaves});
  return node;
}

int32_t PreparedPart::MakeNode(Node node, DeviceRank device) {
  node.root = device == node.device;
  node.device = device;
  node.first_chunk = chunks_;
  node.first_leaf = leaves_;
  chunks_ += node.chunks;
  leaves_ += node.leaves;
  nodes_.push_back(node);
  return static_cast<int32_t>(nodes_.size()) - 1;
}

void PreparedPart::MakeChannels(std::vector<RelayHop> hops) {
  std::sort(hops.begin(), hops.end(), [](const RelayHop& a, const RelayHop& b) {
    return std::tuple(a.hop.channel, a.hop.place) < std::tuple(b.hop.channel, b.hop.place);
  });
  // Both ascend by channel.
  const std::vector<std::pair<ChannelIndex, Digest>> orders = ChannelOrderDigests(*part_);
  for (const RelayHop& hop : hops) {
    if (channels_.empty() || channels_.back().id != hop.hop.channel) {
      Channel channel{.id = hop.hop.channel,
                      .from = hop.hop.from,
                      .to = hop.hop.to,
                      .first_entry = static_cast<int64_t>(entries_.size()),
                      .end_sequence = 1,
                      .order = orders[channels_.size()].second};
      CHECK_EQ(orders[channels_.size()].first, channel.id);
      channel.reach = !owns(channel.from) ? Reach::kIn
                      : !owns(channel.to) ? Reach::kOut
                                          : Reach::kLocal;
      channel_of_id_.emplace(channel.id, static_cast<int32_t>(channels_.size()));
      channels_.push_back(channel);
    }
    AddEntry(channels_.back(), hop);
  }
}

void PreparedPart::AddEntry(Channel& channel, const RelayHop& hop) {
  entries_.push_back({.from_node = hop.from_node,
                      .to_node = hop.to_node,
                      .lag = hop.lag,
                      .first_sequence = channel.end_sequence});
  channel.entry_count++;
  // The end of the relay takes a number as well. The node at another worker is -1; both ends have
  // the same chunks.
  channel.end_sequence += nodes_[std::max(hop.from_node, hop.to_node)].chunks + 1;
}

void PreparedPart::MakeOuts() {
  std::vector<std::pair<int32_t, Out>> node_outs;
  for (int32_t c = 0; c < std::ssize(channels_); ++c) {
    for (int32_t e = 0; e < channels_[c].entry_count; ++e) {
      const int32_t node = entries(channels_[c])[e].from_node;
      if (node >= 0) node_outs.emplace_back(node, Out{.channel = c, .entry = e});
    }
  }
  // By node, so that those of a node stand together.
  std::sort(node_outs.begin(), node_outs.end());
  for (const auto& [node, out] : node_outs) {
    if (nodes_[node].out_count++ == 0) nodes_[node].first_out = std::ssize(outs_);
    outs_.push_back(out);
  }
}

std::span<const PreparedPart::Entry> PreparedPart::entries(const Channel& channel) const {
  return std::span(entries_).subspan(channel.first_entry, channel.entry_count);
}

std::span<const PreparedPart::Out> PreparedPart::outs(const Node& node) const {
  return std::span(outs_).subspan(node.first_out, node.out_count);
}

const TileMap& PreparedPart::tiles(Side side, DeviceRank device) const {
  const DeviceTiles& tiles = *tiles_.at(device);
  return side == Side::kSource ? tiles.source : tiles.destination;
}

PreparedPart::Chunk PreparedPart::ChunkOf(const Node& node, int64_t chunk) const {
  const Cut& cut = cuts_[node.first_cut + chunk];
  const Cut& next = cuts_[node.first_cut + chunk + 1];
  return {.begin = cut.offset,
          .end = next.offset,
          .first_leaf = cut.leaf,
          .leaf_count = next.leaf - cut.leaf};
}

std::optional<DeviceRank> PreparedPart::Channel::remote_end() const {
  switch (reach) {
    case Reach::kIn:
      return from;
    case Reach::kOut:
      return to;
    case Reach::kLocal:
      break;
  }
  return std::nullopt;
}

std::optional<int32_t> PreparedPart::FindChannel(ChannelIndex id) const {
  const auto found = channel_of_id_.find(id);
  if (found == channel_of_id_.end()) return std::nullopt;
  return found->second;
}

std::string NameOf(const PreparedPart& part, const PreparedPart::Node& node) {
  return absl::StrCat("relay ", node.relay, " at ",
                      ToString(part.part().tensors().devices()[node.device]));
}

std::string NameOf(const PreparedPart& part, const PreparedPart::Channel& channel) {
  const std::vector<DeviceId>& devices = part.part().tensors().devices();
  return absl::StrCat("channel ", ToString(devices[channel.from]), " -> ",
                      ToString(devices[channel.to]));
}

}  // namespace crossmesh
