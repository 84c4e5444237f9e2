#pragma once

#include "worker/gpu/communicators/communicator.h"

#include <memory>
#include <string>
#include <vector>

#include <nccl.h>

namespace crossmesh {

// One rank's part of a split of its communicator. NCCL keeps pointers into it: where it puts the
// handle, until the split is done, and the name.
struct RankSplit {
  RankGroups groups;
  std::string name;
  int color = NCCL_SPLIT_NOCOLOR;  // number of the rank's group
  int rank = 0;                    // there
  int size = 0;                    // of it
  ncclComm_t handle = nullptr;     // none before the split is done, and where there is no group
};

// The splits of a communicator that are kept, in the order in which they were asked for last; the
// same at all ranks, since these ask for the same ones. Thread-compatible.
class RankSplits {
 public:
  // Null where it is not kept.
  RankSplit* Find(const RankGroups& groups) const;
  // Counts as asked for now. False where it is not kept.
  bool Use(const RankGroups& groups);
  // One more, of rank `self`.
  RankSplit& Add(RankGroups groups, int self, const std::string& name);

  bool is_full() const { return std::ssize(splits_) >= Communicator::kSplitsKept; }
  RankSplit& oldest() const { return *splits_.front(); }
  // Gives the handle.
  ncclComm_t RemoveOldest();

  const std::vector<std::unique_ptr<RankSplit>>& all() const { return splits_; }

 private:
  std::vector<std::unique_ptr<RankSplit>> splits_;
};

}  // namespace crossmesh
