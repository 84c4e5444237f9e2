#pragma once

#include <string>
#include <utility>

#include <nccl.h>

namespace crossmesh {

// What a call of NCCL comes to. A violation is the caller's mistake, and goes into the report; a
// failure is the machine's or a peer's, or an injected one. Immutable.
struct Result {
  ncclResult_t code = ncclSuccess;
  std::string text;
  bool is_violation = false;

  bool ok() const { return code == ncclSuccess || code == ncclInProgress; }
};

inline Result Failed(ncclResult_t code, std::string text) { return {code, std::move(text)}; }
inline Result Refused(ncclResult_t code, std::string text) { return {code, std::move(text), true}; }

}  // namespace crossmesh
