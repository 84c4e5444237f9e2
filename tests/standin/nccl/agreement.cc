// What the ranks of a communicator tell each other beside messages: the order of their calls.

#include "tests/standin/nccl/communicator.h"

#include <functional>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

uint64_t HashOf(uint64_t before, absl::string_view text) {
  return std::hash<std::string>()(absl::StrCat(before, " ", text));
}

}  // namespace

Result Communicator::Publish(const std::string& text) {
  ++orders_;
  order_hash_ = HashOf(order_hash_, text);
  RendezvousCell& cell = rendezvous_->cell(rank_);
  const size_t slot = orders_ % cell.orders.size();
  SetText(cell.orders[slot].text, text);
  cell.orders[slot].hash = order_hash_;
  cell.orders[slot].number = orders_;
  // Of two ranks that publish at the same time, one at least sees the other.
  for (int rank = 0; rank < rendezvous_->ranks(); ++rank) {
    const RendezvousOrder& other = rendezvous_->cell(rank).orders[slot];
    if (other.number != orders_ || other.hash == order_hash_) continue;
    const Result broken = Violation(
        ncclInvalidUsage,
        absl::StrCat("the ranks differ in call ", orders_, " of the communicator: rank ", rank_,
                     " makes ", text, ", rank ", rank, " makes ", other.text.data()));
    rendezvous_->Break(broken.text);
    Fail(broken);
    return broken;
  }
  return {};
}

}  // namespace crossmesh
