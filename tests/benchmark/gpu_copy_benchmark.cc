// What copies between a GPU and memory of the host cost: memory that is registered, looks at the
// GPU, how many batches are under way at once, and CPU time of the thread that issues the work of
// the GPU. All of an arena is loaded, and stored again, with checksums, by a GpuLoop as in the
// process of a GPU. The driver is the stand-in, whose own time, as its log of calls has it, is
// taken off: it pins nothing, and copies and hashes on the processor, so times are the stand-in's,
// but for the last column.

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/event_loop/event_loop.h"
#include "common/wire/time_codec.h"
#include "crossmesh/v1/gpu_process.pb.h"
#include "tests/benchmark/measure.h"
#include "tests/benchmark/stand_in_time.h"
#include "tests/standin/stand_in.h"
#include "worker/gpu/loop/gpu_loop.h"
#include "worker/gpu/protocol/gpu_message.h"
#include "worker/gpu/protocol/message_socket.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/time/time.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using CopyTiles = v1::GpuRequest::CopyTiles;

constexpr char kHeader[] = "%5s %4s %12s %12s %12s %12s %12s %12s %12s\n";
constexpr char kRow[] = "%5s %4d %12.2f %12d %12.0f %12.2f %12.2f %12.2f %12.2f\n";

// The loop of a GPU on a thread of its own, and the end of its worker.
class Loop {
 public:
  static absl::StatusOr<std::unique_ptr<Loop>> Create();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Waits for the answer.
  absl::Status Ask(v1::GpuRequest request, UniqueFd descriptor = UniqueFd());
  // Of the loop's thread.
  double CpuSeconds();
  int64_t thread() const { return thread_; }

 private:
  Loop() = default;
  absl::Status AwaitNotice();

  const RealClock clock_;
  std::unique_ptr<EventLoop> of_worker_;
  std::unique_ptr<EventLoop> of_gpu_;
  std::unique_ptr<MessageSocket> socket_;
  std::optional<absl::StatusOr<v1::GpuNotice>> notice_;
  std::unique_ptr<GpuLoop> gpu_;
  int64_t thread_ = 0;
  uint64_t last_id_ = 0;
};

absl::StatusOr<std::unique_ptr<Loop>> Loop::Create() {
  std::unique_ptr<Loop> loop(new Loop);
  ASSIGN_OR_RETURN(auto ends, MessageSocket::MakePair());
  ASSIGN_OR_RETURN(loop->of_worker_, EventLoop::Create(loop->clock_, {}));
  ASSIGN_OR_RETURN(loop->of_gpu_, EventLoop::Create(loop->clock_, {}));
  const auto on_message = [raw = loop.get()](const std::string& bytes, UniqueFd /*memory*/) {
    raw->notice_ = ParseGpuNotice(bytes);
  };
  const auto on_closed = [raw = loop.get()](const absl::Status& why) { raw->notice_ = why; };
  ASSIGN_OR_RETURN(loop->socket_,
                   MessageSocket::Create(std::move(ends.first),
                                         {.on_message = on_message, .on_closed = on_closed}));
  loop->of_worker_->AddSource(*loop->socket_);
  loop->of_gpu_->Start();
  absl::Status created;
  loop->of_gpu_->RunAndWait([&] {
    loop->thread_ = gettid();
    auto gpu = GpuLoop::Create(*loop->of_gpu_, loop->clock_, std::move(ends.second),
                               {.gpu = StandInUuid(0),
                                .incarnation = 1,
                                .driver = {.library = StandInDriverPath()},
                                .nccl = {.library = StandInNcclPath()},
                                .staging_bytes = ByteCount(1 << 20)});
    created = gpu.status();
    if (gpu.ok()) loop->gpu_ = *std::move(gpu);
  });
  RETURN_IF_ERROR(created);
  RETURN_IF_ERROR(loop->AwaitNotice());  // its hello
  return loop;
}

Loop::~Loop() {
  if (socket_ != nullptr) of_worker_->RemoveSource(*socket_);
  if (of_gpu_ == nullptr) return;
  of_gpu_->RunAndWait([this] { gpu_.reset(); });
  of_gpu_->Stop();
}

absl::Status Loop::AwaitNotice() {
  while (!notice_.has_value()) of_worker_->RunOnce(absl::Seconds(1));
  return notice_->status();
}

absl::Status Loop::Ask(v1::GpuRequest request, UniqueFd descriptor) {
  request.set_id(++last_id_);
  notice_.reset();
  RETURN_IF_ERROR(socket_->Send(request.SerializeAsString(), std::move(descriptor)));
  RETURN_IF_ERROR(AwaitNotice());
  return FromProto((*notice_)->answer().status());
}

double Loop::CpuSeconds() {
  double seconds = 0;
  of_gpu_->RunAndWait([&] { seconds = ThreadSeconds(); });
  return seconds;
}

double RegisteredGibibytes(const std::vector<StandInCall>& calls) {
  int64_t bytes = 0;
  for (const StandInCall& call : calls) {
    if (std::string(call.name) == "cuMemHostRegister") bytes += call.bytes;
  }
  return static_cast<double>(bytes) / (1 << 30);
}

// Each batch of copies ends with an event, and is over at the first look that finds it done.
int64_t BatchesAtOnce(const std::vector<StandInCall>& calls) {
  int64_t now = 0;
  int64_t most = 0;
  for (const StandInCall& call : calls) {
    const std::string name = call.name;
    if (name == "cuEventRecord") most = std::max(most, ++now);
    if (name == "cuEventQuery" && call.result == CUDA_SUCCESS) --now;
  }
  return most;
}

struct Options {
  int64_t mebibytes = 512;
  int runs = 3;

  int64_t bytes() const { return mebibytes << 20; }
};

absl::Status Measure(Loop& loop, const StandIn& stand_in, const Options& options) {
  v1::GpuRequest create;
  create.mutable_create_arena()->set_arena(1);
  create.mutable_create_arena()->set_size_bytes(options.bytes());
  RETURN_IF_ERROR(loop.Ask(create));
  const double gibibytes = static_cast<double>(options.bytes()) / (1 << 30);
  for (int run = 0; run < options.runs; ++run) {
    const UniqueFd memory(memfd_create("bounce_buffer", MFD_CLOEXEC));
    if (ftruncate(memory.get(), options.bytes()) != 0) return absl::ErrnoToStatus(errno, "memfd");
    for (const auto direction : {CopyTiles::DIRECTION_LOAD, CopyTiles::DIRECTION_STORE}) {
      v1::GpuRequest request;
      CopyTiles& copy = *request.mutable_copy_tiles();
      copy.mutable_key()->set_operation(run);
      copy.set_direction(direction);
      copy.set_arena(1);
      copy.add_ranges()->set_size_bytes(options.bytes());
      copy.set_checksums(true);
      *copy.mutable_deadline() = ToProto(absl::Minutes(10));
      const size_t calls_before = stand_in.Calls().size();
      const double cpu_before = loop.CpuSeconds();
      const absl::Time begin = absl::Now();
      RETURN_IF_ERROR(loop.Ask(request, UniqueFd(fcntl(memory.get(), F_DUPFD_CLOEXEC, 0))));
      const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
      const double cpu_ms = (loop.CpuSeconds() - cpu_before) * 1e3;
      std::vector<StandInCall> calls = stand_in.Calls();
      calls.erase(calls.begin(), calls.begin() + static_cast<ptrdiff_t>(calls_before));
      std::vector<StandInCall> of_thread;
      std::ranges::copy_if(calls, std::back_inserter(of_thread),
                           [&](const StandInCall& call) { return call.thread == loop.thread(); });
      const double own_ms = StandInUs(of_thread) / 1e3;
      std::cout << absl::StrFormat(
          kRow, direction == CopyTiles::DIRECTION_LOAD ? "load" : "store", run,
          RegisteredGibibytes(calls) / gibibytes, BatchesAtOnce(calls),
          static_cast<double>(CountCalls(calls, "cuEventQuery")) / gibibytes, seconds / gibibytes,
          cpu_ms / gibibytes, own_ms / gibibytes, (cpu_ms - own_ms) / gibibytes);
    }
    v1::GpuRequest release;
    release.mutable_release_bounce_buffers()->mutable_key()->set_operation(run);
    RETURN_IF_ERROR(loop.Ask(release));
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app("What copies between a GPU and memory of the host cost.");
  Options options;
  app.add_option("--mebibytes", options.mebibytes, "Of the arena")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--runs", options.runs, "Tasks, each with new memory of the host")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  setenv("CROSSMESH_STANDIN_KERNELS", StandInKernelsPath().c_str(), 1);
  setenv("CROSSMESH_STANDIN_MEMORY_MIB", absl::StrCat(options.mebibytes + 256).c_str(), 1);
  const absl::Status status = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const auto stand_in, StandIn::Load());
    ASSIGN_OR_RETURN(const auto loop, Loop::Create());
    std::cout << "Per GiB, but for batches at once.\n"
              << absl::StrFormat(kHeader, "", "task", "registered", "at once", "looks", "seconds",
                                 "CPU ms", "stand-in ms", "ours ms")
              << std::flush;
    return Measure(*loop, *stand_in, options);
  }();
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) { return crossmesh::Main(argc, argv); }
