#include "worker/gpu/compiler/checksum_comparison.h"

#include "common/base/check.h"
#include "common/plan/plan.h"
#include "worker/executor/leaf_checksum.h"
#include "worker/executor/prepared_part.h"

#include <algorithm>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

// The bytes of the relay's leaf, in its class. Linear in chunks, but only for an error.
PreparedPart::Chunk BytesOfLeaf(const PreparedPart& part, const PreparedPart::Node& node,
                                int64_t leaf) {
  int64_t chunk = 0;
  while (leaf >= part.ChunkOf(node, chunk).first_leaf + part.ChunkOf(node, chunk).leaf_count) {
    ++chunk;
  }
  const PreparedPart::Chunk whole = part.ChunkOf(node, chunk);
  const int64_t begin = whole.begin + (leaf - whole.first_leaf) * Plan::kLeafBytes;
  return {.begin = begin, .end = std::min(begin + Plan::kLeafBytes, whole.end)};
}

absl::Status CompareRelay(const PreparedPart& part, const PreparedPart::Node& node,
                          const LeafHashes& hashes) {
  const auto [expected, found] = std::ranges::mismatch(hashes.of_root, hashes.in_place);
  if (expected == hashes.of_root.end()) return absl::OkStatus();
  const PreparedPart::Chunk leaf = BytesOfLeaf(part, node, expected - hashes.of_root.begin());
  return absl::DataLossError(absl::StrFormat(
      "%s, bytes [%d, %d) of class %d: expected hash %016x of its root, found "
      "%016x in place",
      NameOf(part, node), leaf.begin, leaf.end, node.slice_class, *expected, *found));
}

}  // namespace

DeviceReport CompareChecksums(const CompiledPart& compiled, const LeafHashes& hashes) {
  CHECK_EQ(std::ssize(hashes.of_root), compiled.leaves());
  CHECK_EQ(std::ssize(hashes.in_place), compiled.leaves());
  const PreparedPart& part = compiled.part();
  DeviceReport report{.device = compiled.device()};
  std::vector<uint64_t> checksums;
  for (const CompiledPart::ReceivedRelay& relay : compiled.received()) {
    const PreparedPart::Node& node = part.nodes()[relay.node];
    if (compiled.checksums()) {
      const LeafHashes of_relay = {
          .of_root = hashes.of_root.subspan(relay.first_leaf, node.leaves),
          .in_place = hashes.in_place.subspan(relay.first_leaf, node.leaves)};
      // The root's stand for what is in place: the digest is given only where they agree.
      checksums.push_back(ChecksumOfLeaves(of_relay.of_root));
      if (absl::Status same = CompareRelay(part, node, of_relay); !same.ok()) {
        report.status.Update(same);
        continue;
      }
    }
    report.bytes += node.bytes();
  }
  for (const PreparedPart::Copy& copy : part.copies()) {
    report.bytes += part.slicing().classes()[copy.slice_class].bytes;
  }
  if (compiled.checksums() && report.status.ok()) {
    report.digest = Digest::Of(std::as_bytes(std::span(checksums)));
  }
  return report;
}

}  // namespace crossmesh
