#include "worker/gpu/compiler/m2n_compiler.h"

#include "common/base/status_macros.h"
#include "worker/gpu/compiler/chunk_message.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kHashBytes = ChunkMessage::kHashBytes;

class M2nCompiler {
 public:
  M2nCompiler(const PreparedPart& part, const CompiledPart::Options& options)
      : part_(part), options_(options) {}

  absl::StatusOr<CompiledPart::Lists> Compile() {
    ListPeers();
    for (int32_t i = 0; i < std::ssize(part_.nodes()); ++i) {
      if (part_.nodes()[i].root) AddSent(i);
    }
    first_received_ = ChunkMessage::RoundUp(used_, ChunkMessage::kPlaceAlignment);
    lists_.root_hashes_offset = first_received_;
    for (int32_t i = 0; i < std::ssize(part_.nodes()); ++i) {
      if (!part_.nodes()[i].root) AddReceived(i);
    }
    RETURN_IF_ERROR(CheckStaging());
    AddSteps();
    return std::move(lists_);
  }

 private:
  // All that make the same calls.
  void ListPeers() {
    const auto devices = std::ssize(part_.part().tensors().devices());
    for (DeviceRank device = 0; device < devices; ++device) {
      if (device != part_.part().spec().devices.front()) lists_.peers.push_back(device);
    }
  }

  // One device has one node of each relay that touches it, in their order.
  const WorkerPart::PartRelay& RelayOf(int32_t node) const {
    return part_.part().spec().relays[node];
  }

  void AddSent(int32_t index) {
    const PreparedPart::Node& node = part_.nodes()[index];
    lists_.straight_sent_bytes += node.bytes() * RelayOf(index).hop_count;
    if (!options_.checksums) return;
    for (int32_t c = 0; c < node.chunks; ++c) {
      const PreparedPart::Chunk chunk = part_.ChunkOf(node, c);
      lists_.packs.push_back({.slice_class = node.slice_class,
                              .begin = chunk.begin,
                              .end = chunk.end,
                              .staging_offset = used_ + kHashBytes * chunk.first_leaf});
    }
    const WorkerPart::PartRelay& relay = RelayOf(index);
    for (int64_t h = relay.first_hop; h < relay.first_hop + relay.hop_count; ++h) {
      const DeviceRank receiver = part_.part().spec().hops[h].to;
      lists_.sends.push_back(TransferOf(node, receiver, used_));
      lists_.receivers.push_back(receiver);
    }
    used_ += kHashBytes * node.leaves;
  }

  void AddReceived(int32_t index) {
    const PreparedPart::Node& node = part_.nodes()[index];
    lists_.received.push_back({.node = index, .first_leaf = lists_.leaves});
    lists_.straight_received_bytes += node.bytes();
    if (options_.checksums) {
      const int64_t offset = first_received_ + kHashBytes * lists_.leaves;
      for (int32_t c = 0; c < node.chunks; ++c) {
        const PreparedPart::Chunk chunk = part_.ChunkOf(node, c);
        lists_.unpacks.push_back({.slice_class = node.slice_class,
                                  .begin = chunk.begin,
                                  .end = chunk.end,
                                  .staging_offset = offset + kHashBytes * chunk.first_leaf,
                                  .first_leaf = lists_.leaves + chunk.first_leaf});
      }
      const DeviceRank sender = RelayOf(index).root;
      lists_.receives.push_back(TransferOf(node, sender, offset));
      lists_.senders.push_back(sender);
    }
    lists_.leaves += node.leaves;
  }

  static CompiledPart::Transfer TransferOf(const PreparedPart::Node& node, DeviceRank peer,
                                           int64_t offset) {
    return {.peer = peer, .staging_offset = offset, .bytes = kHashBytes * node.leaves};
  }

  absl::Status CheckStaging() const {
    const int64_t bytes =
        options_.checksums ? first_received_ + kHashBytes * lists_.leaves : int64_t{0};
    if (bytes <= options_.staging_bytes) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        "staging of ",
        ToString(part_.part().tensors().devices()[part_.part().spec().devices.front()]),
        ": expected room for the ", bytes, " bytes of all hashes, found ", options_.staging_bytes));
  }

  void AddSteps() {
    lists_.steps.push_back({.number = 0, .packs = {0, std::ssize(lists_.packs)}, .m2n = true});
    for (auto* const peers : {&lists_.senders, &lists_.receivers}) {
      std::ranges::sort(*peers);
      const auto repeated = std::ranges::unique(*peers);
      peers->erase(repeated.begin(), repeated.end());
    }
    if (lists_.sends.empty() && lists_.receives.empty()) return;
    lists_.steps.push_back({.number = 1,
                            .sends = {0, std::ssize(lists_.sends)},
                            .receives = {0, std::ssize(lists_.receives)},
                            .unpacks = {0, std::ssize(lists_.unpacks)}});
  }

  const PreparedPart& part_;
  const CompiledPart::Options& options_;
  CompiledPart::Lists lists_;
  int64_t used_ = 0;  // of staging, by hashes that are sent
  int64_t first_received_ = 0;
};

}  // namespace

absl::StatusOr<CompiledPart::Lists> CompileForM2n(const PreparedPart& part,
                                                  const CompiledPart::Options& options) {
  return M2nCompiler(part, options).Compile();
}

}  // namespace crossmesh
