#pragma once

#include "tests/standin/control/outcome.h"
#include "tests/standin/control/stand_in_control.h"
#include "tests/standin/driver/stream.h"

#include <cstdint>

namespace crossmesh {

// One call of the driver from begin to end: checks what every call needs, logs it when it goes, and
// keeps the text of its error for cuGetErrorString. Confined to its thread.
class Call {
 public:
  explicit Call(const char* name, CUstream stream = nullptr, int64_t bytes = 0);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Each ends the call, for its function to return.
  CUresult End(const Outcome& outcome = {});
  CUresult Refuse(CUresult result, std::string text) {
    return End(Violation(result, std::move(text)));
  }
  CUresult Fail(CUresult result, std::string text) { return End(Failure(result, std::move(text))); }

  // What the call needs: the driver initialised; a current context; a stream of this context that
  // is not held. A violation otherwise.
  static Outcome NeedDriver();
  static Outcome NeedContext(int& device);
  static Outcome NeedStream(CUstream handle, Stream*& stream);

  // Text of the last error of this thread, if that is what it was; else null.
  static const char* LastText(CUresult result);

 private:
  StandInCall log_;
};

}  // namespace crossmesh
