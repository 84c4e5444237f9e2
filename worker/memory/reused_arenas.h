#pragma once

#include "common/base/byte_count.h"
#include "worker/memory/arena.h"

#include <cstdint>
#include <memory>

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Arenas that are wanted for a short time, and of the same sizes again. One that nobody uses any
// more is kept for the next one who wants as many bytes: it has its pages, which a new one has to
// be given one by one, and transports and peers know it. Thread-safe; arenas may outlive it.
class ReusedArenas {
 public:
  // `bytes_max`: of all that are kept and that nobody uses, together.
  explicit ReusedArenas(ByteCount bytes_max);

  using Make = absl::FunctionRef<absl::StatusOr<std::shared_ptr<Arena>>()>;
  // One of so many bytes: that was used last of those that are kept, with what it was left with; or
  // a new one, by `make`, with its error.
  absl::StatusOr<std::shared_ptr<Arena>> Take(ByteCount bytes, Make make);

 private:
  class Idle;

  const std::shared_ptr<Idle> idle_;  // shared with those that are used
};

}  // namespace crossmesh
