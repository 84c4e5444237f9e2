// What the ranks of a communicator tell each other beside messages: the order of their calls, and
// who goes where in a split or a shrink.

#include "tests/standin/nccl/communicator.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

uint64_t HashOf(uint64_t before, absl::string_view text) {
  return std::hash<std::string>()(absl::StrCat(before, " ", text));
}

}  // namespace

Result Communicator::Split(int color, int key, uint64_t& number) {
  const Phase phase = phase_;
  // Ranks that revoke may have been at different calls.
  if (phase == Phase::kReady) {
    if (Result published = Publish("ncclCommSplit"); !published.ok()) return published;
  }
  number = ++splits_;
  RendezvousCell& cell = rendezvous_->cell(rank_);
  RendezvousChoice& choice = cell.choices[number % cell.choices.size()];
  choice.color = color;
  choice.key = key;
  choice.number = number;
  rendezvous_->RingAllDoorbells();
  auto advance = [this, number]() -> std::optional<Result> {
    if (!PlaceAfterSplit(number, NCCL_SPLIT_NOCOLOR).has_value()) return std::nullopt;
    return Result{};
  };
  return Start({.call = "ncclCommSplit", .advance = advance, .next = phase});
}

std::optional<Communicator::Place> Communicator::PlaceAfterSplit(uint64_t number, int color) const {
  if (rendezvous_ == nullptr) return std::nullopt;
  std::vector<std::pair<int, int>> members;  // key and rank
  for (int rank = 0; rank < rendezvous_->ranks(); ++rank) {
    const RendezvousCell& cell = rendezvous_->cell(rank);
    const RendezvousChoice& choice = cell.choices[number % cell.choices.size()];
    if (choice.number != number) return std::nullopt;
    if (choice.color == color) members.emplace_back(choice.key, rank);
  }
  std::ranges::sort(members);
  const auto mine =
      std::ranges::find(members, rank_, [](const auto& member) { return member.second; });
  return Place{.rendezvous_name = absl::StrCat(rendezvous_->name(), "-split-", number, "-", color),
               .ranks = static_cast<int>(members.size()),
               .rank = static_cast<int>(mine - members.begin())};
}

Result Communicator::Shrink(std::span<const int> excluded, bool aborts, uint64_t& number) {
  if (std::ranges::find(excluded, rank_) != excluded.end()) {
    return Refused(ncclInvalidArgument, "by a rank that is to be excluded");
  }
  if (aborts) {
    stops_ = true;
    async_error_.reset();
    rendezvous_->RingDoorbell(rank_);
  } else if (!AllRan()) {
    return Refused(ncclInvalidUsage, "while operations are outstanding, without SHRINK_ABORT");
  }
  const Phase next = aborts || phase_ == Phase::kRevoked ? Phase::kRevoked : phase_;
  number = ++shrinks_;
  const std::vector<int> ranks(excluded.begin(), excluded.end());
  const uint64_t hash = HashOf(number, absl::StrJoin(ranks, ","));
  rendezvous_->cell(rank_).shrink_hash = hash;
  rendezvous_->cell(rank_).shrink_number = number;
  rendezvous_->RingAllDoorbells();
  auto advance = [this, number, hash, ranks]() -> std::optional<Result> {
    if (!NothingRuns()) return std::nullopt;
    for (int rank = 0; rank < rendezvous_->ranks(); ++rank) {
      if (std::ranges::find(ranks, rank) != ranks.end()) continue;
      const RendezvousCell& cell = rendezvous_->cell(rank);
      if (cell.shrink_number < number) return std::nullopt;
      if (cell.shrink_number == number && cell.shrink_hash != hash) {
        return Refused(ncclInvalidUsage,
                       absl::StrCat("ranks ", rank_, " and ", rank, " exclude different ranks"));
      }
    }
    return Result{};
  };
  return Start({.call = "ncclCommShrink", .advance = advance, .next = next});
}

Communicator::Place Communicator::PlaceAfterShrink(uint64_t number,
                                                   std::span<const int> excluded) const {
  const auto excluded_before = [&](int end) {
    return std::ranges::count_if(excluded, [&](int rank) { return rank < end; });
  };
  const uint64_t hash = HashOf(number, absl::StrJoin(excluded, ","));
  return {.rendezvous_name = absl::StrCat(rendezvous_->name(), "-shrink-", number, "-", hash),
          .ranks = static_cast<int>(rendezvous_->ranks() - excluded_before(rendezvous_->ranks())),
          .rank = static_cast<int>(rank_ - excluded_before(rank_))};
}

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
    const Result broken = Refused(
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
