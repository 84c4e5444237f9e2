#pragma once

#include "common/base/fake_clock.h"
#include "common/event_loop/event_loop.h"
#include "common/metrics/worker_metrics.h"
#include "common/plan/worker_part.h"
#include "crossmesh/v1/execution_service.pb.h"
#include "worker/memory/storage_table.h"
#include "worker/tasks/execute_call.h"
#include "worker/tasks/task_table.h"
#include "worker/tasks/testing/fake_executor.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <gtest/gtest.h>

namespace crossmesh {

// Writes down what it is told, each message as a line: "accepted", "done 2 OK", "report OK".
class FakeCaller final : public TaskCaller {
 public:
  void Say(const v1::ExecuteResponse& response) override;
  void End(const absl::Status& status) override;

  std::vector<std::string> said;
  std::optional<absl::Status> end;
  std::string last_message;  // of a report, a device or a resolution
  v1::TaskReport report;     // the last one
};

// One Execute call, made by a test.
struct FakeExecuteCall {
  explicit FakeExecuteCall(TaskTable& table)
      : caller(std::make_shared<FakeCaller>()), call(table, caller) {}

  std::shared_ptr<FakeCaller> caller;
  ExecuteCall call;
};

// A worker "w1" of the devices a.0-1 and b.0-1, with a clock that stands still and an executor that
// moves nothing. Its part brings 32 bytes, halves of which a.0 and a.1 hold in storage "old", to
// b.0 (rank 2) and b.1 (rank 3) in storage "new". All storages are there.
class TaskFixture : public ::testing::Test {
 protected:
  static constexpr int64_t kStorageBytes = 64;

  explicit TaskFixture(TaskTable::Options options = {}, BindingMode binding = BindingMode::kShadow);

  TaskTable MakeTable(TaskTable::Options options);
  void MakeStorage(const std::string& name, const std::string& device);
  void DeleteAllStorages();
  StorageStatus StatusOf(const std::string& name, const std::string& device);
  std::byte FirstByte(const std::string& name, const std::string& device);

  // Reasons of the commands that were refused, by their labels, in the order of their enumeration.
  std::vector<std::string> Rejections() const;

  static TaskKey Key(uint64_t operation, uint64_t epoch = 1, uint32_t attempt = 1);
  v1::ExecuteRequest StartOf(const TaskKey& key) const;
  v1::ExecuteRequest PieceOf(size_t begin, size_t end, bool last) const;
  static v1::ExecuteRequest ResolveOf(const std::vector<int32_t>& devices, bool commit);

  // Runs both loops until nothing is left to do.
  void RunLoops();
  void Send(FakeExecuteCall& call, const v1::ExecuteRequest& request);
  // Starts a task and sends the part when it is asked for.
  std::unique_ptr<FakeExecuteCall> Start(const TaskKey& key);
  std::unique_ptr<FakeExecuteCall> StartWith(const v1::ExecuteRequest& start);
  void Finish(const TaskKey& key, const absl::Status& status = absl::OkStatus());
  void Advance(absl::Duration step);

  FakeClock clock_;
  WorkerMetrics metrics_;
  std::unique_ptr<EventLoop> control_;
  std::unique_ptr<EventLoop> data_;
  StorageTable storages_{Arena::Pages::kSmall};
  MemoryBudget memory_{ByteCount(1 << 20)};
  FakeExecutor executor_;
  Digest part_digest_;
  std::string part_bytes_;
  TaskTable table_;
};

}  // namespace crossmesh
