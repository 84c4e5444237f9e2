#include "worker/gpu/compiler/collective_compiler.h"

#include "common/base/status_macros.h"
#include "worker/gpu/compiler/chunk_message.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

class CollectiveCompiler {
 public:
  CollectiveCompiler(const PreparedPart& part, const CompiledPart::Options& options)
      : part_(part), options_(options) {
    if (const auto* const group = options.collective->GroupOf(self()); group != nullptr) {
      group_ = *group;
    }
  }

  absl::StatusOr<CompiledPart::Lists> Compile() {
    if (group_.empty()) return std::move(lists_);
    ListPeers();
    if (options_.checksums) RETURN_IF_ERROR(PlaceHashes());
    for (int32_t i = 0; i < std::ssize(part_.nodes()); ++i) {
      AddBytes(i);
      if (options_.checksums) AddHashes(i);
    }
    lists_.steps.push_back({.number = 0,
                            .packs = {0, std::ssize(lists_.packs)},
                            .unpacks = {0, std::ssize(lists_.unpacks)},
                            .collective = true});
    return std::move(lists_);
  }

 private:
  DeviceRank self() const { return part_.part().spec().devices.front(); }
  // One device has one node of each relay that touches it, in their order.
  const WorkerPart::PartRelay& RelayOf(int32_t node) const {
    return part_.part().spec().relays[node];
  }
  // Leaves are in the order of the group, those of this device among them.
  int64_t FirstLeafOf(int32_t node) const {
    if (leaves_of_rank_ == 0) return 0;
    return (std::ranges::find(group_, RelayOf(node).root) - group_.begin()) * leaves_of_rank_;
  }

  void ListPeers() {
    lists_.peers = group_;
    std::erase(lists_.peers, self());
    std::ranges::sort(lists_.peers);
  }

  // As the plan has them, whatever way they go.
  void AddBytes(int32_t index) {
    const PreparedPart::Node& node = part_.nodes()[index];
    if (node.root) {
      lists_.straight_sent_bytes += node.bytes() * RelayOf(index).hop_count;
    } else {
      lists_.straight_received_bytes += node.bytes();
      lists_.received.push_back({.node = index, .first_leaf = FirstLeafOf(index)});
    }
  }

  // All ranks have as many, each in its place.
  absl::Status PlaceHashes() {
    for (const PreparedPart::Node& node : part_.nodes()) {
      if (leaves_of_rank_ == 0) leaves_of_rank_ = node.leaves;
      if (node.leaves == leaves_of_rank_) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("relay ", node.relay,
                       " of an all-gather: expected as many leaves as in the "
                       "first one, ",
                       leaves_of_rank_, ", found ", node.leaves));
    }
    lists_.leaves = std::ssize(group_) * leaves_of_rank_;
    const int64_t bytes = ChunkMessage::kHashBytes * lists_.leaves;
    if (bytes <= options_.staging_bytes) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        "staging of ", ToString(part_.part().tensors().devices()[self()]),
        ": expected room for the ", bytes, " bytes of all hashes, found ", options_.staging_bytes));
  }

  void AddHashes(int32_t index) {
    const PreparedPart::Node& node = part_.nodes()[index];
    const int64_t first_leaf = FirstLeafOf(index);
    for (int32_t c = 0; c < node.chunks; ++c) {
      const PreparedPart::Chunk chunk = part_.ChunkOf(node, c);
      const int64_t leaf = first_leaf + chunk.first_leaf;
      const int64_t offset = ChunkMessage::kHashBytes * leaf;
      if (node.root) {
        lists_.packs.push_back({.slice_class = node.slice_class,
                                .begin = chunk.begin,
                                .end = chunk.end,
                                .staging_offset = offset});
      } else {
        lists_.unpacks.push_back({.slice_class = node.slice_class,
                                  .begin = chunk.begin,
                                  .end = chunk.end,
                                  .staging_offset = offset,
                                  .first_leaf = leaf});
      }
    }
  }

  const PreparedPart& part_;
  const CompiledPart::Options& options_;
  std::vector<DeviceRank> group_;  // empty: the device has nothing to do
  CompiledPart::Lists lists_;
  int64_t leaves_of_rank_ = 0;
};

}  // namespace

absl::StatusOr<CompiledPart::Lists> CompileForCollective(const PreparedPart& part,
                                                         const CompiledPart::Options& options) {
  return CollectiveCompiler(part, options).Compile();
}

}  // namespace crossmesh
