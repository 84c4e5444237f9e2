#pragma once

#include <string>
#include <utility>

#include <cuda.h>
#include <nccl.h>

namespace crossmesh {

// What a call comes to. A violation is the caller's mistake, and goes into the report; a failure is
// the machine's or a peer's, or an injected one. Immutable.
template <typename Code>
struct CallOutcome {
  Code code = {};
  std::string text;
  bool is_violation = false;

  bool ok() const { return code == Code{} || IsInProgress(code); }

 private:
  static bool IsInProgress(CUresult /*code*/) { return false; }
  static bool IsInProgress(ncclResult_t code) { return code == ncclInProgress; }
};
// Of the driver; of NCCL.
using Outcome = CallOutcome<CUresult>;
using Result = CallOutcome<ncclResult_t>;

template <typename Code>
CallOutcome<Code> Failure(Code code, std::string text) {
  return {code, std::move(text), false};
}
template <typename Code>
CallOutcome<Code> Violation(Code code, std::string text) {
  return {code, std::move(text), true};
}

// In a function that gives an outcome; in one that ends a call with it.
#define RETURN_IF_FAILED(expression) \
  if (auto failed = (expression); !failed.ok()) return failed
#define END_IF_FAILED(call, expression) \
  if (auto failed = (expression); !failed.ok()) return (call).End(failed)

}  // namespace crossmesh
