#include "controller/requests/request_budget.h"

#include "common/base/byte_count.h"
#include "common/base/format.h"
#include "common/base/mutex.h"
#include "common/rpc/push_back.h"

#include <algorithm>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

constexpr int64_t kDefaultMin = int64_t{64} << 20;
constexpr int64_t kDefaultMax = int64_t{1} << 30;
// Of the budget what large requests leave to small ones.
constexpr int64_t kPartOfSmallOnes = 8;
// Requests wait for planners, of which each is done within seconds.
constexpr absl::Duration kRetryAfter = absl::Seconds(1);

std::string Text(int64_t bytes) { return FormatBytes(ByteCount(bytes)); }

}  // namespace

class RequestBudget::State {
 public:
  explicit State(int64_t bytes_max) : bytes_max_(bytes_max) {}

  int64_t bytes_max() const { return bytes_max_; }
  int64_t MaxFor(int64_t bytes) const {
    return bytes <= kSmallBytesMax ? bytes_max_ : bytes_max_ - bytes_max_ / kPartOfSmallOnes;
  }
  int64_t taken() const {
    const MutexLock lock(mutex_);
    return taken_;
  }
  // What was taken before; it is taken when both together are no more than `most`.
  int64_t Take(int64_t bytes, int64_t most) {
    const MutexLock lock(mutex_);
    const int64_t before = taken_;
    if (bytes <= most - before) taken_ += bytes;
    return before;
  }
  void GiveBack(int64_t bytes) {
    const MutexLock lock(mutex_);
    taken_ -= bytes;
  }

 private:
  const int64_t bytes_max_;
  mutable Mutex mutex_;
  int64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
};

int64_t RequestBudget::DefaultOf(int64_t memory_limit) {
  return std::clamp(memory_limit / 8, kDefaultMin, kDefaultMax);
}

absl::StatusOr<RequestBudget::Share> RequestBudget::Take(int64_t bytes) {
  const int64_t most = state_->MaxFor(bytes);
  if (bytes > most) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory of a request: expected at most ", Text(most), ", found ", Text(bytes),
                     "; register its manifest or its meshes first and name them, or start the "
                     "controller with a larger --request-memory-max"));
  }
  const int64_t before = state_->Take(bytes, most);
  if (bytes <= most - before) return Share(state_, bytes);
  return WithPushBack(
      absl::ResourceExhaustedError(absl::StrCat(
          "memory of all requests: expected at most ", Text(most), ", found ", Text(before),
          " of others and ", Text(bytes),
          " of this one; let others be answered first, or start the controller with a larger "
          "--request-memory-max")),
      kRetryAfter);
}

RequestBudget::RequestBudget(int64_t bytes_max) : state_(std::make_shared<State>(bytes_max)) {}

int64_t RequestBudget::bytes_max() const { return state_->bytes_max(); }
int64_t RequestBudget::taken() const { return state_->taken(); }

RequestBudget::Share::Share(std::shared_ptr<State> state, int64_t bytes)
    : state_(std::move(state)), bytes_(bytes) {}

RequestBudget::Share::Share(Share&& other) noexcept
    : state_(std::move(other.state_)), bytes_(std::exchange(other.bytes_, 0)) {}

RequestBudget::Share& RequestBudget::Share::operator=(Share&& other) noexcept {
  Share taken(std::move(other));  // so that what this one had is given back now
  std::swap(state_, taken.state_);
  std::swap(bytes_, taken.bytes_);
  return *this;
}

RequestBudget::Share::~Share() {
  if (state_ != nullptr) state_->GiveBack(bytes_);
}

}  // namespace crossmesh
