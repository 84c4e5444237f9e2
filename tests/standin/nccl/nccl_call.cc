#include "tests/standin/nccl/nccl_call.h"

#include "tests/standin/control/handles.h"

#include <ctime>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

thread_local std::string last_text;

int64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Lives as long as the process, since the calls of a C library have no object.
Handles<Communicator>& Communicators() {
  static Handles<Communicator>& communicators = *new Handles<Communicator>;
  return communicators;
}

}  // namespace

NcclCall::NcclCall(const char* name, CUstream stream, int64_t bytes)
    : log_{.name = name, .stream = stream, .bytes = bytes, .start_ns = MonotonicNs()} {}

NcclCall::~NcclCall() {
  if (entered_ != nullptr) entered_->Leave();
  crossmeshStandInLogCall(&log_);
}

ncclResult_t NcclCall::End(const Result& result) {
  log_.result = result.code;
  if (result.ok()) return result.code;
  const std::string text = absl::StrCat(log_.name, ": ", result.text);
  last_text = absl::StrCat(crossmeshStandInName(), ": ", text);
  if (result.is_violation) crossmeshStandInViolate(text.c_str());
  return result.code;
}

Result NcclCall::EnterAnyhow(ncclComm_t handle, Communicator*& communicator) {
  communicator = FindCommunicator(handle);
  if (communicator == nullptr) return Refused(ncclInvalidArgument, "no such communicator");
  if (!communicator->TryEnter()) {
    return Refused(ncclInvalidUsage, "while another thread is in a call on the communicator");
  }
  entered_ = communicator;
  return {};
}

Result NcclCall::Enter(ncclComm_t handle, Communicator::Purpose purpose,
                       Communicator*& communicator) {
  if (Result entered = EnterAnyhow(handle, communicator); !entered.ok()) return entered;
  return communicator->Check(purpose);
}

const char* NcclCall::LastText() { return last_text.c_str(); }

ncclComm_t AddCommunicator(std::unique_ptr<Communicator> communicator) {
  return reinterpret_cast<ncclComm_t>(Communicators().Add(std::move(communicator)));
}

Communicator* FindCommunicator(ncclComm_t handle) { return Communicators().Find(handle); }

}  // namespace crossmesh
