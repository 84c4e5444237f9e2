#include "tests/simulation/simulated_object_client.h"

#include "controller/store/metadata_store.h"

#include <iterator>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

constexpr char kKey[] = "object/only";
// Null: it is deleted.
constexpr const char* kValues[] = {"first", "second", nullptr};
constexpr size_t kSteps = 2 * std::size(kValues);

std::optional<std::string> ValueAt(size_t step) {
  const char* const value = kValues[step / 2];
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace

bool SimulatedObjectClient::is_done() const { return step_ == kSteps; }

void SimulatedObjectClient::Start() {
  const absl::Duration pause = ports_.node.world().Between(absl::Seconds(1), absl::Seconds(2));
  ports_.node.After(pause, [this] { Change(); });
}

void SimulatedObjectClient::Open(const char* label, Call call, std::function<void()> again) {
  SimulatedController& at = *ports_.controllers[controller_ % ports_.controllers.size()];
  const auto stream = ports_.network.Open(ports_.node, at.node(), [](const auto& /*stream*/) {});
  stream->Hear(0, [this, step = step_, again = std::move(again)](const absl::Status& /*status*/) {
    if (step_ != step || is_done()) return;
    ++controller_;
    ports_.node.After(absl::Milliseconds(200), [this, step, again] {
      if (step_ == step) again();
    });
  });
  stream->Send(0, label, [&at, stream, call = std::move(call)] { call(at, stream); });
}

void SimulatedObjectClient::Change() {
  Open(
      "is asked for a change",
      [this, step = step_](SimulatedController& at,
                           const std::shared_ptr<SimulatedStream>& stream) {
        at.Change(stream, {kKey, ValueAt(step)}, [this, step](const absl::Status& status) {
          if (!status.ok() || step_ != step) return;
          ++step_;
          Look();
        });
      },
      [this] { Change(); });
}

void SimulatedObjectClient::Look() {
  Open(
      "is asked for an object",
      [this, step = step_](SimulatedController& at,
                           const std::shared_ptr<SimulatedStream>& stream) {
        at.Read(stream, kKey, [this, step](const auto& value) { OnValue(step, value); });
      },
      [this] { Look(); });
}

void SimulatedObjectClient::OnValue(size_t step, const std::optional<std::string>& value) {
  if (step_ != step) return;  // of an answer that comes late
  const std::optional<std::string> expected = ValueAt(is_done() ? kSteps - 1 : step);
  if (value != expected) {
    ports_.history.Violated(absl::StrCat("object ", kKey, " is ", value.value_or("not there"),
                                         ", and a client was told that it is ",
                                         expected.value_or("deleted")));
  }
  if (is_done()) return;
  ++step_;
  if (!is_done()) Change();
}

void SimulatedObjectClient::LookAgain() {
  for (size_t i = 0; i < ports_.controllers.size(); ++i, ++controller_) Look();
}

}  // namespace crossmesh
