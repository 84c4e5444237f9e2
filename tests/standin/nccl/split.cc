// Communicators of parts of a communicator's ranks.

#include "tests/standin/control/stand_in_control.h"
#include "tests/standin/nccl/communicator.h"
#include "tests/standin/nccl/nccl_call.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

Result Communicator::Split(int color, int key, ncclComm_t* made) {
  *made = nullptr;
  if (color < NCCL_SPLIT_NOCOLOR) {
    return Violation(ncclInvalidArgument, absl::StrCat("color ", color));
  }
  if (!AllRan()) {
    return Violation(ncclInvalidUsage, "while operations of the communicator are under way");
  }
  RETURN_IF_FAILED(Publish("ncclCommSplit"));
  RETURN_IF_FAILED(BeginMaking());
  ++splits_;
  auto& splits = rendezvous_->cell(rank_).splits;
  RendezvousSplit& own = splits[splits_ % splits.size()];
  own.color = color;
  own.key = key;
  own.number = splits_;
  const bool fails = crossmeshStandInFaultDue("init_fails") != 0;
  auto advance = [this, color, made, fails]() -> std::optional<Result> {
    if (fails) return Failure(ncclSystemError, "injected fault init_fails");
    return AdvanceSplit(color, made);
  };
  return Start({.call = "ncclCommSplit", .advance = std::move(advance)});
}

std::optional<Communicator::Place> Communicator::PlaceIn(int color) const {
  std::vector<std::pair<int, int>> members;  // key, rank
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto& splits = rendezvous_->cell(rank).splits;
    const RendezvousSplit& split = splits[splits_ % splits.size()];
    if (split.number != splits_) return std::nullopt;
    if (split.color == color) members.emplace_back(split.key, rank);
  }
  std::ranges::sort(members);
  const auto own = std::ranges::find(members, rank_, &std::pair<int, int>::second);
  return Place{.rendezvous_name = absl::StrCat(rendezvous_->name(), "-", splits_, "-", color),
               .ranks = static_cast<int>(members.size()),
               .rank = static_cast<int>(own - members.begin())};
}

std::optional<Result> Communicator::AdvanceSplit(int color, ncclComm_t* made) {
  if (part_ == nullptr) {
    const std::optional<Place> place = PlaceIn(color);
    if (!place.has_value() || crossmeshStandInFault("init_never_ends") != 0) return std::nullopt;
    if (color == NCCL_SPLIT_NOCOLOR) return Result{};
    Rendezvous::Make(place->rendezvous_name);
    part_ = std::make_unique<Communicator>(device_);
    part_->identity_ = identity_;
    RETURN_IF_FAILED(part_->TakeMemory("a communicator", kBytes));
    RETURN_IF_FAILED(part_->Join(*place));
  }
  if (!part_->AllJoined()) return std::nullopt;
  part_->rendezvous_->RemoveName();
  part_->phase_ = Phase::kReady;
  parts_.push_back(part_.get());
  *made = AddCommunicator(std::move(part_));
  return Result{};
}

Result Communicator::CheckParts() const {
  const auto open = std::ranges::count_if(
      parts_, [](const Communicator* part) { return part->CheckOpen().ok(); });
  if (open == 0) return {};
  return Violation(ncclInvalidUsage, absl::StrCat("before ", open,
                                                  " communicators that were split from it have "
                                                  "ended"));
}

}  // namespace crossmesh
