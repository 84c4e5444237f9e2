#pragma once

#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>

namespace crossmesh {

// How much memory the requests of a controller take together, from before they are parsed until
// nothing needs them any more. Small ones find room that large ones leave: they are answered when
// those are refused. Thread-safe.
class RequestBudget {
 public:
  static constexpr int64_t kSmallBytesMax = int64_t{64} << 10;

  explicit RequestBudget(int64_t bytes_max);

  // An eighth of the memory that the process may use, from 64 MiB to 1 GiB.
  static int64_t DefaultOf(int64_t memory_limit);

  // What a request has taken; given back when it goes away, which may be after the budget.
  class Share;
  // ResourceExhausted says what to do, and when to come again if there will be room.
  absl::StatusOr<Share> Take(int64_t bytes);

  int64_t bytes_max() const;
  int64_t taken() const;

 private:
  class State;

  const std::shared_ptr<State> state_;
};

class RequestBudget::Share {
 public:
  Share() = default;  // of nothing
  Share(Share&& other) noexcept;
  Share& operator=(Share&& other) noexcept;
  ~Share();

 private:
  friend class RequestBudget;
  Share(std::shared_ptr<State> state, int64_t bytes);

  std::shared_ptr<State> state_;  // shared with the budget; null: of nothing
  int64_t bytes_ = 0;
};

}  // namespace crossmesh
