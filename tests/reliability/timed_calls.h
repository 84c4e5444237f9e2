#pragma once

#include "client/client.h"
#include "tests/reliability/load.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// A client that registers a mesh, reads it and deletes it, again and again, and notes how long each
// call takes. None may fail. Confined to its thread, but while it does not run.
class TimedCalls final : public Load {
 public:
  explicit TimedCalls(const LoadEnvironment& environment);

  void Run(const std::atomic<bool>& stop) override;
  void Check() override {}
  std::string Summary() const override;

  // Of the calls since it was taken last; zero when there were none.
  absl::Duration TakeP99();

 private:
  void Time(absl::string_view call, absl::FunctionRef<absl::Status()> make);

  const LoadEnvironment environment_;
  Client client_;
  std::vector<absl::Duration> took_;
  int64_t calls_ = 0;
};

}  // namespace crossmesh
