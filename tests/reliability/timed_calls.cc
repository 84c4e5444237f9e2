#include "tests/reliability/timed_calls.h"

#include "common/base/clock.h"
#include "tests/reliability/load_client.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

TimedCalls::TimedCalls(const LoadEnvironment& environment)
    : environment_(environment), client_(ConnectForLoad(environment.cluster)) {}

void TimedCalls::Run(const std::atomic<bool>& stop) {
  v1::Mesh mesh;
  mesh.set_name("timed");
  mesh.set_axes("x=2");
  mesh.set_devices("m.0-1");
  while (!stop) {
    Time("CreateMesh", [&] { return client_.CreateMesh(mesh).status(); });
    Time("GetMesh", [&] { return client_.GetMesh(mesh.name()).status(); });
    Time("DeleteMesh", [&] { return client_.DeleteMesh(mesh.name()); });
    PauseOfLoad();
  }
}

void TimedCalls::Time(absl::string_view call, absl::FunctionRef<absl::Status()> make) {
  const RealClock clock;
  const absl::Duration begin = clock.Monotonic();
  const absl::Status status = make();
  took_.push_back(clock.Monotonic() - begin);
  ++calls_;
  if (!status.ok()) environment_.violations.Add(absl::StrCat(call, ": ", status.ToString()));
}

absl::Duration TimedCalls::TakeP99() {
  std::vector<absl::Duration> took = std::exchange(took_, {});
  if (took.empty()) return absl::ZeroDuration();
  const auto p99 = took.begin() + static_cast<std::ptrdiff_t>(took.size() * 99 / 100);
  std::ranges::nth_element(took, p99);
  return *p99;
}

std::string TimedCalls::Summary() const { return absl::StrCat("calls ", calls_); }

}  // namespace crossmesh
