#include "tests/standin/nccl/nccl_call.h"

#include "tests/standin/control/handles.h"

#include <chrono>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

thread_local std::string last_text;

// Lives as long as the process, since the calls of a C library have no object.
Handles<Communicator>& Communicators() {
  static Handles<Communicator>& communicators = *new Handles<Communicator>;
  return communicators;
}

}  // namespace

NcclCall::NcclCall(const char* name, CUstream stream, int64_t bytes)
    : log_{.name = name,
           .stream = stream,
           .bytes = bytes,
           .start_ns = std::chrono::steady_clock::now().time_since_epoch().count()} {}

NcclCall::~NcclCall() { crossmeshStandInLogCall(&log_); }

ncclResult_t NcclCall::End(const Result& result) {
  log_.result = result.code;
  if (result.ok()) return result.code;
  const std::string text = absl::StrCat(log_.name, ": ", result.text);
  last_text = absl::StrCat(crossmeshStandInName(), ": ", text);
  if (result.is_violation) crossmeshStandInViolate(text.c_str());
  return result.code;
}

Result NcclCall::NeedOpen(ncclComm_t handle, Communicator*& communicator) {
  communicator = FindCommunicator(handle);
  if (communicator == nullptr) return Violation(ncclInvalidArgument, "no such communicator");
  return communicator->CheckOpen();
}

Result NcclCall::Need(ncclComm_t handle, Communicator::Purpose purpose,
                      Communicator*& communicator) {
  RETURN_IF_FAILED(NeedOpen(handle, communicator));
  return communicator->Check(purpose);
}

const char* NcclCall::LastText() { return last_text.c_str(); }

Communicator* FindCommunicator(ncclComm_t handle) { return Communicators().Find(handle); }

ncclComm_t AddCommunicator(std::unique_ptr<Communicator> communicator) {
  return reinterpret_cast<ncclComm_t>(Communicators().Add(std::move(communicator)));
}

}  // namespace crossmesh
