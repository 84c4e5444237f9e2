#include "tests/reliability/cancel_load.h"

#include "client/outcome.h"
#include "client/pause.h"
#include "tests/reliability/load_client.h"

#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

constexpr uint64_t kMomentsMs = 40;

}  // namespace

CancelLoad::CancelLoad(const LoadEnvironment& environment, ReshardOptions options, uint64_t seed)
    : environment_(environment),
      options_(std::move(options)),
      client_(ConnectForLoad(environment.cluster)),
      random_(seed) {}

void CancelLoad::Run(const std::atomic<bool>& stop) {
  if (reshard_ == nullptr) {
    absl::StatusOr<std::unique_ptr<ReshardCase>> made =
        ReshardCase::Create(options_, environment_.cluster);
    if (!made.ok()) return environment_.violations.Add(made.status().ToString());
    reshard_ = *std::move(made);
  }
  while (!stop) Step();
}

void CancelLoad::Step() {
  v1::ExecuteReshardRequest request;
  *request.mutable_spec() = reshard_->spec();
  // So that it is planned each time.
  request.mutable_spec()->set_seed(random_());
  request.set_request_id(NewRequestId());
  const absl::StatusOr<v1::Operation> begun = client_.Start(request);
  if (!begun.ok()) return environment_.violations.Add(begun.status().ToString());
  Pause(absl::Milliseconds(random_() % kMomentsMs));
  const absl::Status cancelled = client_.CancelOperation(begun->id(), "for a test");
  // It may have ended by then.
  if (!cancelled.ok() && !absl::IsFailedPrecondition(cancelled)) {
    environment_.violations.Add(cancelled.ToString());
  }
  const absl::StatusOr<v1::Operation> ended =
      client_.Watch(begun->id(), [](const v1::Operation&) {});
  if (!ended.ok()) return environment_.violations.Add(ended.status().ToString());
  environment_.ended.Count();
  ++counts_[StateName(ended->state())];
  if (ended->state() == v1::OPERATION_STATE_FAILED) {
    environment_.violations.Add(absl::StrCat("operation ", ended->id(), ": ", ended->error()));
  }
}

std::string CancelLoad::Summary() const {
  std::string text;
  for (const auto& [state, count] : counts_) absl::StrAppend(&text, state, " ", count, ", ");
  return absl::StrCat(text, "all cancelled at some moment");
}

}  // namespace crossmesh
