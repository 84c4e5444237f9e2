#pragma once

#include "controller/store/forwarding_store.h"
#include "tests/simulation/simulated_history.h"
#include "tests/simulation/simulated_node.h"

#include <cstdint>
#include <memory>
#include <utility>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// A store of this host whose commits take simulated time. Those that are not answered when it goes
// away may be there or not.
class DelayedStore final : public ForwardingStore {
 public:
  DelayedStore(SimulatedNode& node, MetadataStore& inner, SimulatedHistory& history)
      : ForwardingStore(inner), node_(node), history_(history) {}

  void CommitThen(StoreTransaction transaction, CommitDone done) override {
    // All take the same time, so that they keep their order.
    auto commit = std::make_shared<std::pair<StoreTransaction, CommitDone>>(std::move(transaction),
                                                                            std::move(done));
    const auto is_there = std::weak_ptr<const bool>(is_there_);
    node_.After(kThere, [this, is_there, commit] {
      if (is_there.expired()) return;
      const uint64_t epoch = commit->first.epoch;
      auto result =
          std::make_shared<absl::StatusOr<int64_t>>(store().Commit(std::move(commit->first)));
      if (result->ok()) history_.OnCommitted(epoch);
      node_.After(kBack, [is_there, commit, result] {
        if (!is_there.expired()) commit->second(std::move(*result));
      });
    });
  }

 private:
  static constexpr absl::Duration kThere = absl::Microseconds(100);
  static constexpr absl::Duration kBack = absl::Microseconds(50);

  SimulatedNode& node_;
  SimulatedHistory& history_;
  const std::shared_ptr<const bool> is_there_ = std::make_shared<const bool>(true);
};

}  // namespace crossmesh
