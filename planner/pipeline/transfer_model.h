#pragma once

#include "planner/pipeline/op_table.h"

#include <array>
#include <cstdint>
#include <ostream>
#include <vector>

#include <absl/container/inlined_vector.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What transfers between ranks share. They take turns, but for kPorts.
enum class TransferModel : uint8_t {
  kLatency,   // nothing: any number are under way beside computation
  kLink,      // a port for each ordered pair of ranks
  kPair,      // a port for each pair of ranks, for both directions
  kNic,       // a port out of each rank, and one into it
  kPorts,     // the ports that the edges of the profile name, all at once: see SharedPorts
  kBlocking,  // the ranks themselves: a rank that sends or receives does not compute
};

inline constexpr std::array<TransferModel, 6> kAllTransferModels = {
    TransferModel::kLatency, TransferModel::kLink,  TransferModel::kPair,
    TransferModel::kNic,     TransferModel::kPorts, TransferModel::kBlocking};

// "latency", "link", "pair", "nic", "ports", "blocking".
absl::string_view TransferModelName(TransferModel model);
inline std::ostream& operator<<(std::ostream& out, TransferModel model) {
  return out << TransferModelName(model);
}

// The ports of each transfer. Immutable.
class TransferPorts {
 public:
  // Of a pipeline under a model.
  TransferPorts(const PipelineProfile& profile, TransferModel model);
  // Those that each transfer names, ascending.
  explicit TransferPorts(std::vector<absl::InlinedVector<PortIndex, 2>> of_transfer);

  int32_t size() const { return size_; }
  int32_t transfers() const { return static_cast<int32_t>(of_transfer_.size()); }
  // Those that each message of a transfer needs at once; none when both ends are one rank.
  const absl::InlinedVector<PortIndex, 2>& Of(TransferIndex transfer) const {
    return of_transfer_[transfer];
  }

 private:
  void TakeFromEdges(const PipelineProfile& profile);
  void ShareBetweenRanks(const PipelineProfile& profile, TransferModel model);

  int32_t size_ = 0;
  std::vector<absl::InlinedVector<PortIndex, 2>> of_transfer_;
};

}  // namespace crossmesh
