#pragma once

#include "common/base/check.h"
#include "worker/executor/executor.h"
#include "worker/executor/prepared_part.h"

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// An executor that moves nothing: a test says how its tasks come out. Confined to the thread that
// runs the loops.
class FakeExecutor final : public Executor {
 public:
  struct Running {
    TaskSpec spec;
    TaskObserver* observer = nullptr;
  };

  void RefuseStarts(absl::Status status) { refusal_ = std::move(status); }

  const TaskSpec& spec(const TaskKey& key) const { return running_.at(key).spec; }
  bool running(const TaskKey& key) const { return running_.contains(key); }
  const std::vector<std::pair<TaskKey, absl::Status>>& cancelled() const { return cancelled_; }
  const std::vector<TaskKey>& refused() const { return refused_; }
  const std::vector<std::pair<TaskKey, std::string>>& lost() const { return lost_; }
  void SetMovedBytes(int64_t bytes) { moved_bytes_ = bytes; }

  // Every device that has not been finished comes out with `status`, then the task ends.
  void FinishTask(const TaskKey& key, const absl::Status& status = absl::OkStatus()) {
    Running task = std::move(running_.at(key));
    running_.erase(key);
    TaskReport report{.key = key, .status = status, .sent_bytes = 7, .seconds = {.move = 0.5}};
    for (const DeviceRank device : task.spec.part->destinations()) {
      report.devices.push_back({.device = device, .status = status, .bytes = 32});
      task.observer->OnDeviceDone(key, report.devices.back());
    }
    task.observer->OnTaskDone(report);
  }

  // The task ends, and no word of `device` has come.
  void EndWithout(const TaskKey& key, DeviceRank device) {
    Running task = std::move(running_.at(key));
    running_.erase(key);
    TaskReport report{.key = key};
    for (const DeviceRank rank : task.spec.part->destinations()) {
      if (rank == device) continue;
      report.devices.push_back({.device = rank, .bytes = 32});
      task.observer->OnDeviceDone(key, report.devices.back());
    }
    task.observer->OnTaskDone(report);
  }

  // Those that it was told of, in order.
  const std::vector<uint64_t>& epochs() const { return epochs_; }

  absl::Status Attach(Transport& /*transport*/) override { return absl::OkStatus(); }
  absl::Status Start(TaskSpec spec, TaskObserver& observer) override {
    if (!refusal_.ok()) return refusal_;
    const TaskKey key = spec.key;
    running_[key] = {.spec = std::move(spec), .observer = &observer};
    return absl::OkStatus();
  }
  void Cancel(const TaskKey& key, absl::Status why) override {
    cancelled_.emplace_back(key, std::move(why));
  }
  void Refuse(const TaskKey& key) override { refused_.push_back(key); }
  void RaiseEpoch(uint64_t epoch) override { epochs_.push_back(epoch); }
  void PeerLost(const TaskKey& key, absl::string_view worker, absl::Status /*why*/) override {
    lost_.emplace_back(key, std::string(worker));
  }
  void SourceHere(const TaskKey& /*key*/, DeviceRank /*device*/) override {}
  std::optional<int64_t> MovedBytes(const TaskKey& key) const override {
    if (!running(key)) return std::nullopt;
    return moved_bytes_;
  }
  const ExecutorCounters& counters() const override { return counters_; }
  ReplayRunner& replays() override {
    CHECK(false) << "tasks are not replayed";
    std::abort();
  }

  void OnMessage(std::unique_ptr<IncomingMessage> /*message*/) override {}
  void OnSent(Ticket /*ticket*/, const absl::Status& /*status*/) override {}
  void OnReceived(Ticket /*ticket*/, const absl::Status& /*status*/) override {}
  void OnPeerLost(PeerId /*peer*/, const absl::Status& /*status*/) override {}

 private:
  absl::Status refusal_;
  absl::btree_map<TaskKey, Running> running_;
  std::vector<std::pair<TaskKey, absl::Status>> cancelled_;
  std::vector<TaskKey> refused_;
  std::vector<std::pair<TaskKey, std::string>> lost_;
  std::vector<uint64_t> epochs_;
  int64_t moved_bytes_ = 0;
  ExecutorCounters counters_;
};

}  // namespace crossmesh
