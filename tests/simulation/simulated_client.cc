#include "tests/simulation/simulated_client.h"

#include "tests/simulation/simulated_worker.h"

#include <memory>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(30);

}  // namespace

void SimulatedClient::Start() {
  ports_.node.After(world().Between(absl::Seconds(1), habits_.pause_max), [this] { Next(); });
}

std::shared_ptr<SimulatedStream> SimulatedClient::Open(int controller, const char* label,
                                                       Call call) {
  SimulatedController& at = *ports_.controllers[controller % ports_.controllers.size()];
  const auto stream = ports_.network.Open(
      ports_.node, at.node(), [](const std::shared_ptr<SimulatedStream>& /*stream*/) {});
  stream->Send(0, label, [&at, stream, call = std::move(call)] { call(at, stream); });
  return stream;
}

void SimulatedClient::Next() {
  if (finishing_ || asked_ == habits_.operations) return;
  ++asked_;
  const int64_t version = ++ports_.versions[reshard_];
  for (SimulatedWorker* worker : ports_.workers) worker->FillSource(reshard_);
  request_ = {.reshard = reshard_,
              .version = version,
              .id = absl::StrCat(ports_.node.name(), "-", version),
              .deadline = kDeadline};
  operation_.clear();
  ended_ = false;
  ports_.history.OnRequest(reshard_, version);
  world().Log(ports_.node.name(), "asks for version", absl::StrCat(version));
  Ask(controller_);
  if (world().Happens(0.1)) Ask(controller_ + 1);
  if (world().Happens(habits_.cancels)) {
    const absl::Duration after = world().Between(absl::ZeroDuration(), habits_.cancels_within);
    ports_.node.After(after, [this, version] {
      if (request_.version == version && !ended_) Cancel();
    });
  }
}

void SimulatedClient::Ask(int controller) {
  const int64_t version = request_.version;
  const auto stream =
      Open(controller, "is asked for a reshard",
           [this, request = request_](SimulatedController& at,
                                      const std::shared_ptr<SimulatedStream>& at_controller) {
             at.Execute(at_controller, request,
                        [this, version = request.version](const v1::Operation& operation) {
                          OnOperation(version, operation);
                        });
           });
  stream->Hear(0, [this, version](const absl::Status& /*status*/) {
    if (ended_ || request_.version != version) return;
    ports_.node.After(world().Between(absl::Milliseconds(100), absl::Seconds(1)), [this, version] {
      if (!ended_ && request_.version == version) Ask(++controller_);
    });
  });
}

void SimulatedClient::OnOperation(int64_t version, const v1::Operation& operation) {
  ports_.history.OnTold(reshard_, version, operation);
  if (ended_ || version != request_.version) return;
  const bool is_first = operation_.empty();
  operation_ = operation.id();
  if (!operation.has_end_time()) {
    // Before anything has begun.
    if (is_first && world().Happens(0.1)) Cancel();
    return;
  }
  ended_ = true;
  if (world().Happens(0.3)) {
    ports_.node.After(world().Between(absl::Seconds(1), absl::Seconds(60)),
                      [this, version, id = operation.id()] { LookAgain(version, id); });
  }
  ports_.node.After(world().Between(absl::ZeroDuration(), habits_.pause_max), [this] { Next(); });
}

void SimulatedClient::Cancel() {
  if (operation_.empty()) return;
  world().Log(ports_.node.name(), "cancels", operation_);
  Open(controller_, "is asked to cancel",
       [id = operation_](SimulatedController& at,
                         const std::shared_ptr<SimulatedStream>& at_controller) {
         at.Cancel(at_controller, id, [](const absl::StatusOr<v1::Operation>& /*answer*/) {});
       });
}

void SimulatedClient::LookAgain() {
  for (size_t i = 0; i < ports_.controllers.size(); ++i, ++controller_) {
    LookAgain(request_.version, operation_);
  }
}

void SimulatedClient::LookAgain(int64_t version, const std::string& id) {
  Open(controller_, "is asked how an operation is",
       [this, version, id](SimulatedController& at,
                           const std::shared_ptr<SimulatedStream>& at_controller) {
         at.Get(at_controller, id, [this, version, id](const absl::StatusOr<v1::Operation>& told) {
           if (absl::IsNotFound(told.status())) ports_.history.OnUnknown(id);
           if (told.ok()) ports_.history.OnTold(reshard_, version, *told);
         });
       });
}

}  // namespace crossmesh
