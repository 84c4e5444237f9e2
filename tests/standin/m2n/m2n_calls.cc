#include "tests/standin/control/stand_in_control.h"
#include "tests/standin/m2n/m2n_group.h"

#include <chrono>
#include <string>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

thread_local std::string last_text;

// One call from begin to end: it goes into the log, and the text of its error to the next call of
// ncclM2nGetLastError.
class M2nCall {
 public:
  explicit M2nCall(const char* name, CUstream stream = nullptr)
      : log_{.name = name,
             .stream = stream,
             .start_ns = std::chrono::steady_clock::now().time_since_epoch().count()} {
    last_text.clear();
  }
  ~M2nCall() { crossmeshStandInLogCall(&log_); }
  M2nCall(const M2nCall&) = delete;
  M2nCall& operator=(const M2nCall&) = delete;

  ncclResult_t End(const Result& result) {
    log_.result = result.code;
    if (result.ok()) return result.code;
    const std::string text = absl::StrCat(log_.name, ": ", result.text);
    last_text = absl::StrCat(crossmeshStandInName(), ": ", text);
    if (result.is_violation) crossmeshStandInViolate(text.c_str());
    return result.code;
  }

 private:
  StandInCall log_;
};

}  // namespace
}  // namespace crossmesh

using crossmesh::M2nCall;
using crossmesh::M2nGroup;

extern "C" {

ncclResult_t ncclM2nInit(ncclM2nHandle_t* handle, const ncclM2nConfig_t* config) {
  M2nCall call("ncclM2nInit");
  return call.End(crossmesh::InitM2n(handle, config));
}

ncclResult_t ncclM2nFinalize(ncclM2nHandle_t handle) {
  M2nCall call("ncclM2nFinalize");
  return call.End(crossmesh::FinalizeM2n(handle));
}

const char* ncclM2nGetLastError(void) { return crossmesh::last_text.c_str(); }

ncclResult_t ncclM2nGroupStart(void) {
  M2nCall call("ncclM2nGroupStart");
  M2nGroup::OfThread().Start();
  return call.End({});
}

ncclResult_t ncclM2nGroupEnd(void) {
  M2nCall call("ncclM2nGroupEnd");
  return call.End(M2nGroup::OfThread().End());
}

ncclResult_t ncclM2nGroupAbort(void) {
  M2nCall call("ncclM2nGroupAbort");
  M2nGroup::OfThread().Abort();
  return call.End({});
}

ncclResult_t ncclReshard(ncclM2nHandle_t handle, ncclComm_t communicator,
                         const ncclDistTensor_t* source, const ncclDistTensor_t* destination,
                         cudaStream_t stream) {
  M2nCall call("ncclReshard", stream);
  return call.End(M2nGroup::OfThread().Add(handle, {communicator, source, destination, stream}));
}

}  // extern "C"
