#include "controller/store/sqlite/testing/simulated_disk.h"
#include "tests/simulation/simulated_cluster.h"
#include "tests/simulation/simulated_state_folder.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace crossmesh {

// Whether operations may be unable to end as long as it lasts.
bool SimulatedCluster::IsOfStore(const SimulatedFault& fault) const {
  const int controllers = static_cast<int>(controllers_.size());
  const auto is_of_store = [&](int node) {
    return node < controllers || (has_etcd_ && node == std::ssize(nodes_) - 1);
  };
  switch (fault.kind) {
    case SimulatedFault::Kind::kSwizzle:
    case SimulatedFault::Kind::kDelay:
    case SimulatedFault::Kind::kLoss:
    case SimulatedFault::Kind::kPauseInCommit:
    case SimulatedFault::Kind::kPowerLoss:
    case SimulatedFault::Kind::kDiskFull:
    case SimulatedFault::Kind::kSyncFailures:
    case SimulatedFault::Kind::kBitFlip:
      return true;
    default:
      return is_of_store(fault.node) || is_of_store(fault.other);
  }
}

void SimulatedCluster::Apply(const SimulatedFault& fault) {
  world_.Log("FAULT", options_.keeps_log ? fault.ToString() : "");
  if (IsOfStore(fault)) disturbed_ = std::max(disturbed_, world_.now() + fault.length);
  SimulatedNode& node = *nodes_[fault.node];
  const auto later = [this, &fault](SimulatedWorld::Step step) {
    world_.After(fault.length, std::move(step));
  };
  switch (fault.kind) {
    case SimulatedFault::Kind::kKill:
      KillProcess(fault.node);
      return later([this, number = fault.node] { StartProcess(number); });
    case SimulatedFault::Kind::kPause:
      return Pause(node, fault.length);
    case SimulatedFault::Kind::kPauseInCommit:
      return PauseInCommit(fault.length);
    case SimulatedFault::Kind::kPauseAtOrder:
      return PauseAtOrder(fault.length);
    case SimulatedFault::Kind::kCut:
      network_.Clog(fault.other, fault.node);
      later([this, fault] { network_.Unclog(fault.other, fault.node); });
      [[fallthrough]];
    case SimulatedFault::Kind::kCutOneWay:
      network_.Clog(fault.node, fault.other);
      return later([this, fault] { network_.Unclog(fault.node, fault.other); });
    case SimulatedFault::Kind::kSwizzle:
      return Swizzle(fault);
    case SimulatedFault::Kind::kDelay:
      network_.SetDelay(absl::Seconds(fault.amount));
      return later([this] { network_.SetDelay(absl::ZeroDuration()); });
    case SimulatedFault::Kind::kLoss:
      network_.SetLoss(fault.amount);
      return later([this] { network_.SetLoss(0); });
    case SimulatedFault::Kind::kFlips:
      fabric_.SetFlips(fault.amount);
      return later([this] { fabric_.SetFlips(0); });
    case SimulatedFault::Kind::kWallJump:
      return node.JumpWallClock(absl::Seconds(fault.amount));
    case SimulatedFault::Kind::kDrift:
      node.SetSpeed(fault.amount);
      return later([&node] { node.SetSpeed(1); });
    case SimulatedFault::Kind::kCompact:
      if (etcd_ != nullptr) etcd_->Compact();
      return;
    case SimulatedFault::Kind::kPowerLoss:
    case SimulatedFault::Kind::kDiskFull:
    case SimulatedFault::Kind::kSyncFailures:
    case SimulatedFault::Kind::kBitFlip:
      return ApplyToDisk(fault);
  }
}

void SimulatedCluster::ApplyToDisk(const SimulatedFault& fault) {
  if (state_ == nullptr) return;
  SimulatedDisk& disk = state_->disk();
  const auto count = static_cast<int64_t>(fault.amount);
  if (fault.kind == SimulatedFault::Kind::kPowerLoss) {
    disk.PowerOffAfter(count);
    world_.After(fault.length, [this, &disk] {
      if (disk.is_off()) return;
      disk.PowerOff();
      StartAgain(0, absl::Seconds(1));
    });
  } else if (fault.kind == SimulatedFault::Kind::kDiskFull) {
    disk.LimitBytes(disk.bytes());
    world_.After(fault.length, [&disk] { disk.LimitBytes(std::nullopt); });
  } else if (fault.kind == SimulatedFault::Kind::kSyncFailures) {
    disk.FailSyncsAfter(0, count);
    world_.After(fault.length, [&disk] { disk.FailSyncsAfter(0, 0); });
  } else {
    KillProcess(0);
    state_->FlipBit(fault.amount);
    world_.After(fault.length, [this] { StartProcess(0); });
  }
}

void SimulatedCluster::Pause(SimulatedNode& node, absl::Duration length) {
  node.Pause();
  network_.WatchPaused(node);
  world_.After(length, [&node] { node.Resume(); });
}

// The answer waits for it until another one leads.
void SimulatedCluster::PauseInCommit(absl::Duration length) {
  if (etcd_ == nullptr) return;
  etcd_->OnNextCommit([this, length] {
    disturbed_ = std::max(disturbed_, world_.now() + length);
    for (const auto& controller : controllers_) {
      if (controller->leads()) Pause(controller->node(), length);
    }
  });
}

void SimulatedCluster::PauseAtOrder(absl::Duration length) {
  for (const auto& worker : workers_) {
    worker->OnNextCommitOrder([this, length, paused = worker.get()] {
      for (const auto& other : workers_) other->OnNextCommitOrder(nullptr);
      Pause(paused->node(), length);
    });
  }
}

void SimulatedCluster::Swizzle(const SimulatedFault& fault) {
  const int nodes = static_cast<int>(nodes_.size());
  const int cuts = 2 + world_.Pick(2 * nodes);
  for (int i = 0; i < cuts; ++i) {
    const int from = world_.Pick(nodes);
    const int to = world_.Pick(nodes);
    world_.After(world_.Between(absl::ZeroDuration(), fault.length / 2),
                 [this, from, to] { network_.Clog(from, to); });
    world_.After(world_.Between(fault.length / 2, fault.length),
                 [this, from, to] { network_.Unclog(from, to); });
  }
}

void SimulatedCluster::Heal() {
  network_.UnclogAll();
  network_.SetDelay(absl::ZeroDuration());
  network_.SetLoss(0);
  fabric_.SetFlips(0);
  if (state_ != nullptr) {
    state_->disk().LimitBytes(std::nullopt);
    state_->disk().FailSyncsAfter(0, 0);
  }
  for (int i = 0; i < std::ssize(nodes_); ++i) {
    nodes_[i]->SetSpeed(1);
    nodes_[i]->Resume();
    StartProcess(i);
  }
  world_.Log("FAULT", "no more");
}

}  // namespace crossmesh
