#include "worker/tasks/testing/task_fixture.h"

#include "common/base/check.h"
#include "common/metrics/label_set.h"
#include "common/metrics/metric_names.h"
#include "common/metrics/testing/metric_value.h"
#include "common/plan/testing/chain_plan.h"
#include "common/wire/worker_part_codec.h"

#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

std::string CodeName(int32_t code) {
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
}

std::unique_ptr<EventLoop> MakeLoop(const Clock& clock) {
  auto loop = EventLoop::Create(clock, {.spin = absl::ZeroDuration()});
  CHECK_OK(loop);
  return *std::move(loop);
}

WorkerPart MakePart(BindingMode binding) {
  const Plan plan = ChainPlan(TensorOf("[8]: x=2 on a.0-1 [x] -> x=2 on b.0-1 [-]"),
                              {"a.0 > b.0 > b.1", "a.1 > b.1 > b.0"}, {.binding = binding});
  auto parts = CutParts(plan, {plan.tensors().devices()});
  CHECK_OK(parts);
  return parts->front();
}

}  // namespace

void FakeCaller::Say(const v1::ExecuteResponse& response) {
  EXPECT_FALSE(end.has_value()) << "said after the end: " << response.ShortDebugString();
  switch (response.message_case()) {
    case v1::ExecuteResponse::kNeedPart:
      said.emplace_back("need part");
      break;
    case v1::ExecuteResponse::kAccepted:
      said.emplace_back("accepted");
      break;
    case v1::ExecuteResponse::kDeviceDone:
      last_message = response.device_done().message();
      said.push_back(absl::StrCat("done ", response.device_done().device(), " ",
                                  CodeName(response.device_done().code())));
      break;
    case v1::ExecuteResponse::kReport:
      last_message = response.report().message();
      report = response.report();
      said.push_back(absl::StrCat("report ", CodeName(response.report().code())));
      break;
    case v1::ExecuteResponse::kResolved:
      last_message = response.resolved().message();
      said.push_back(absl::StrCat("resolved ", absl::StrJoin(response.resolved().devices(), ","),
                                  " ", CodeName(response.resolved().code())));
      break;
    case v1::ExecuteResponse::kRefusedAsReceiver:
      said.emplace_back("refused as receiver");
      break;
    case v1::ExecuteResponse::MESSAGE_NOT_SET:
      FAIL() << "an empty message";
  }
}

void FakeCaller::End(const absl::Status& status) {
  if (!end.has_value()) end = status;
}

TaskFixture::TaskFixture(TaskTable::Options options, BindingMode binding)
    : control_(MakeLoop(clock_)), data_(MakeLoop(clock_)), table_(MakeTable(std::move(options))) {
  const WorkerPart part = MakePart(binding);
  part_digest_ = part.digest();
  part_bytes_ = ToProto(part).SerializeAsString();
  for (const char* device : {"a.0", "a.1"}) MakeStorage("old", device);
  for (const char* device : {"b.0", "b.1"}) MakeStorage("new", device);
}

TaskTable TaskFixture::MakeTable(TaskTable::Options options) {
  options.worker = "w1";
  for (const char* device : {"a.0", "a.1", "b.0", "b.1"}) {
    options.devices.push_back(*ParseDevice(device));
  }
  return TaskTable(std::move(options),
                   {.control = *control_,
                    .data = *data_,
                    .runner = executor_,
                    .storages = storages_,
                    .memory = memory_,
                    .clock = clock_,
                    .metrics = metrics_},
                   EpochFence());
}

void TaskFixture::MakeStorage(const std::string& name, const std::string& device) {
  ASSERT_TRUE(storages_.Create({name, *ParseDevice(device)}, kStorageBytes).ok());
}

void TaskFixture::DeleteAllStorages() {
  for (const StorageStatus& storage : storages_.List()) CHECK_OK(storages_.Delete(storage.key));
}

StorageStatus TaskFixture::StatusOf(const std::string& name, const std::string& device) {
  auto status = storages_.Status({name, *ParseDevice(device)});
  CHECK_OK(status);
  return *status;
}

std::byte TaskFixture::FirstByte(const std::string& name, const std::string& device) {
  auto opened = storages_.Open({name, *ParseDevice(device)});
  CHECK_OK(opened);
  return opened->arena->bytes()[0];
}

std::vector<std::string> TaskFixture::Rejections() const {
  std::vector<std::string> rejections;
  for (const absl::string_view reason : kCommandRejections) {
    const double count = ValueOf(metrics_.metrics(), metric::kCommandsRejected, reason);
    rejections.insert(rejections.end(), static_cast<size_t>(count), std::string(reason));
  }
  return rejections;
}

TaskKey TaskFixture::Key(uint64_t operation, uint64_t epoch, uint32_t attempt) {
  return {.operation = operation, .epoch = epoch, .plan = attempt};
}

v1::ExecuteRequest TaskFixture::StartOf(const TaskKey& key) const {
  v1::ExecuteRequest request;
  v1::ExecuteRequest::Start& start = *request.mutable_start();
  start.set_operation(key.operation);
  start.set_epoch(key.epoch);
  start.set_attempt(key.plan);
  start.set_token("0123456789abcdef");
  start.set_part_digest(part_digest_.ToString());
  start.set_source_storage("old");
  start.set_destination_storage("new");
  start.set_checksums(true);
  v1::ExecuteRequest::Peer& peer = *start.add_peers();
  peer.set_worker("w1");
  for (int32_t rank = 0; rank < 4; ++rank) peer.add_devices(rank);
  start.mutable_deadline()->set_seconds(60);
  start.mutable_stall_limit()->set_seconds(5);
  start.set_operation_id(absl::StrCat("op-", key.operation));
  return request;
}

v1::ExecuteRequest TaskFixture::PieceOf(size_t begin, size_t end, bool last) const {
  v1::ExecuteRequest request;
  request.mutable_piece()->set_data(part_bytes_.substr(begin, end - begin));
  request.mutable_piece()->set_last(last);
  return request;
}

v1::ExecuteRequest TaskFixture::ResolveOf(const std::vector<int32_t>& devices, bool commit) {
  v1::ExecuteRequest request;
  request.mutable_resolve()->mutable_devices()->Assign(devices.begin(), devices.end());
  request.mutable_resolve()->set_commit(commit);
  return request;
}

void TaskFixture::RunLoops() {
  while (control_->RunOnce(absl::ZeroDuration()) + data_->RunOnce(absl::ZeroDuration()) > 0) {
  }
}

void TaskFixture::Send(FakeExecuteCall& call, const v1::ExecuteRequest& request) {
  call.call.OnRequest(request);
  RunLoops();
}

std::unique_ptr<FakeExecuteCall> TaskFixture::Start(const TaskKey& key) {
  return StartWith(StartOf(key));
}

std::unique_ptr<FakeExecuteCall> TaskFixture::StartWith(const v1::ExecuteRequest& start) {
  auto call = std::make_unique<FakeExecuteCall>(table_);
  Send(*call, start);
  std::vector<std::string>& said = call->caller->said;
  if (!said.empty() && said.front() == "need part") {
    said.clear();
    Send(*call, PieceOf(0, part_bytes_.size(), true));
  }
  return call;
}

void TaskFixture::Finish(const TaskKey& key, const absl::Status& status) {
  executor_.FinishTask(key, status);
  RunLoops();
}

void TaskFixture::Advance(absl::Duration step) {
  clock_.Advance(step);
  RunLoops();
}

}  // namespace crossmesh
