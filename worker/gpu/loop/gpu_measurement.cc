#include "worker/gpu/loop/gpu_measurement.h"

#include "common/base/status_macros.h"
#include "common/wire/communicator_codec.h"
#include "worker/gpu/communicators/registered_staging.h"
#include "worker/gpu/device/gpu_event.h"
#include "worker/gpu/device/gpu_stream.h"
#include "worker/gpu/device/registered_memory.h"
#include "worker/gpu/executor/device_pointer.h"
#include "worker/gpu/kernels/kernel_launches.h"
#include "worker/gpu/loop/communicator_orders.h"
#include "worker/gpu/protocol/gpu_message.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// One look may keep the loop so long: what is shorter is seen at its end, and not a look later.
constexpr absl::Duration kSpin = absl::Milliseconds(20);
constexpr int64_t kLaunches = 256;
// Packs of a sample are to take so long together.
constexpr double kPackSeconds = 1e-3;
constexpr int64_t kPacksMax = 64;
constexpr int64_t kGroups = 64;
constexpr int64_t kMessages = 8;
constexpr int64_t kExchanges = 8;
constexpr int64_t kSamples = 5;  // that count: medians are of these

constexpr int64_t kStagingBytesMin = int64_t{1} << 20;
constexpr int64_t kExchangeBytesMax = int64_t{64} << 20;
constexpr int64_t kPackedBytesMax = int64_t{32} << 20;
constexpr int64_t kLeafBytes = int64_t{64} << 10;
constexpr int64_t kShortBytes = 16;
// Half of each row's pitch: what a cut in the last dimension is like.
constexpr int64_t kRowBytes = 4096;

// Where things lie in staging. Packs read the first half, by rows; what they write, hashes and
// lists are in the second. Exchanges send the first half to the second.
struct Places {
  explicit Places(const RegisteredStaging& staging)
      : first(staging.address()),
        half(staging.bytes() / 2 / kLeafBytes * kLeafBytes),
        exchanged(std::min(half, kExchangeBytesMax)),
        packed(std::min(half / 2, kPackedBytesMax) / kLeafBytes * kLeafBytes) {}

  uint64_t second() const { return first + half; }
  uint64_t hashes() const { return second() + packed; }
  uint64_t lists() const { return hashes() + packed / kLeafBytes * sizeof(uint64_t); }

  uint64_t first;
  int64_t half;
  int64_t exchanged;
  int64_t packed;
};

struct Lists {
  KernelBox box;
  PackSegment segments[2];  // a short one and a long one
};

double MedianOf(std::vector<double> samples) {
  std::ranges::nth_element(samples, samples.begin() + std::ssize(samples) / 2);
  return samples[samples.size() / 2];
}

int64_t NsOf(double seconds) { return std::max<int64_t>(1, static_cast<int64_t>(seconds * 1e9)); }

int64_t RateOf(int64_t bytes, double seconds) {
  return std::max<int64_t>(
      1, static_cast<int64_t>(static_cast<double>(bytes) / std::max(seconds, 1e-9)));
}

}  // namespace

struct GpuMeasurement::Running {
  enum class State : uint8_t { kMeasuring, kStopping, kDraining };

  Done done;
  Communicator* communicator = nullptr;
  absl::Duration deadline;  // on the monotonic clock
  v1::MeasureGpuResponse figures;
  State state = State::kMeasuring;
  absl::Status failure;

  Work work = Work::kLaunch;
  int64_t packs = 1;            // of a sample
  double group_seconds = 0;     // with one message
  std::vector<double> samples;  // of the work, in seconds
  bool is_warm = false;         // one that does not count was taken
  bool is_sampling = false;
  absl::Duration begun;      // of the sample, on the monotonic clock
  int64_t groups_left = 0;   // to be issued, of the sample
  bool is_recorded = false;  // the event after the last group

  bool is_alone() const { return communicator->size() == 1; }
  bool is_local() const { return work == Work::kLaunch || work == Work::kPack; }
};

GpuMeasurement::GpuMeasurement(const Ports& ports)
    : ports_(ports), pack_(ports.gpu.KernelNamed<PackArguments>("crossmesh_pack")) {}

GpuMeasurement::~GpuMeasurement() = default;

absl::StatusOr<std::unique_ptr<GpuMeasurement>> GpuMeasurement::Create(const Ports& ports) {
  auto made = absl::WrapUnique(new GpuMeasurement(ports));
  ASSIGN_OR_RETURN(made->lists_, RegisteredMemory::Create(ports.gpu, ByteCount(sizeof(Lists))));
  ASSIGN_OR_RETURN(made->pack_stream_, GpuStream::Create(ports.gpu));
  ASSIGN_OR_RETURN(made->wire_stream_,
                   GpuStream::Create(ports.gpu, GpuStream::Priority::kGreatest));
  ASSIGN_OR_RETURN(made->packed_, GpuEvent::Create(ports.gpu));
  ASSIGN_OR_RETURN(made->wired_, GpuEvent::Create(ports.gpu));
  return made;
}

void GpuMeasurement::Begin(const v1::MeasureGpuRequest& request, Done done) {
  absl::StatusOr<std::unique_ptr<Running>> prepared = Prepare(request);
  if (!prepared.ok()) return done(prepared.status());
  running_ = *std::move(prepared);
  running_->done = std::move(done);
  if (const absl::Status status = UploadLists(); !status.ok()) Fail(status);
}

absl::StatusOr<std::unique_ptr<GpuMeasurement::Running>> GpuMeasurement::Prepare(
    const v1::MeasureGpuRequest& request) {
  if (running_ != nullptr) {
    return absl::FailedPreconditionError("measurement: expected none that runs, found another one");
  }
  ASSIGN_OR_RETURN(const CommunicatorKey key, FromProto(request.key()));
  ASSIGN_OR_RETURN(const absl::Duration timeout, ParseLimit("timeout", request.timeout()));
  if (ports_.staging.bytes() < kStagingBytesMin) {
    return absl::FailedPreconditionError(absl::StrCat("measurement: expected ", kStagingBytesMin,
                                                      " bytes of staging, found ",
                                                      ports_.staging.bytes()));
  }
  auto running = std::make_unique<Running>();
  running->communicator = ports_.communicators.Find(key);
  if (running->communicator == nullptr) {
    return absl::NotFoundError(absl::StrCat("communicator ", key.ToString(), " is not here"));
  }
  running->deadline = ports_.clock.Monotonic() + timeout;
  char model[256] = {};
  const DriverApi& driver = ports_.gpu.driver();
  RETURN_IF_ERROR(ports_.gpu.Check(
      driver.cuDeviceGetName(model, sizeof(model) - 1, ports_.gpu.device()), "cuDeviceGetName"));
  running->figures.set_model(model);
  return running;
}

absl::Status GpuMeasurement::UploadLists() {
  const Places places(ports_.staging);
  const Lists lists = {
      .box = {.address = places.first,
              .rows = places.packed / kRowBytes,
              .row_bytes = kRowBytes,
              .pitch_bytes = 2 * kRowBytes},
      .segments = {{.end = kShortBytes, .box_end = 1}, {.end = places.packed, .box_end = 1}}};
  std::memcpy(lists_->bytes().data(), &lists, sizeof(lists));
  return lists_->CopyToGpu(lists_->bytes(), places.lists(), *pack_stream_);
}

void GpuMeasurement::Poll() {
  if (running_ == nullptr) return;
  if (running_->state == Running::State::kMeasuring) {
    if (const absl::Status status = Advance(); !status.ok()) return Fail(status);
    if (running_->work == Work::kEnd) End(std::move(running_->figures));
  } else if (running_->state == Running::State::kDraining) {
    const absl::StatusOr<bool> packed = packed_->IsDone();
    const absl::StatusOr<bool> wired = wired_->IsDone();
    // Of a GPU that is lost no event tells any more.
    if (packed.value_or(true) && wired.value_or(true)) End(running_->failure);
  }
}

absl::Status GpuMeasurement::Advance() {
  const absl::Duration now = ports_.clock.Monotonic();
  if (now > running_->deadline) {
    return absl::DeadlineExceededError("measurement: the time for it has passed");
  }
  if (!running_->is_sampling) RETURN_IF_ERROR(BeginSample());
  do {
    ASSIGN_OR_RETURN(const bool is_done, AdvanceSample());
    if (!is_done) continue;
    EndSample();
    return absl::OkStatus();
  } while (ports_.clock.Monotonic() < now + kSpin);
  return absl::OkStatus();
}

absl::Status GpuMeasurement::BeginSample() {
  running_->is_sampling = true;
  running_->is_recorded = false;
  running_->groups_left = running_->work == Work::kExchange ? kExchanges : kGroups;
  running_->begun = ports_.clock.Monotonic();
  return running_->is_local() ? QueuePacks() : absl::OkStatus();
}

absl::Status GpuMeasurement::QueuePacks() {
  const Places places(ports_.staging);
  const bool is_short = running_->work == Work::kLaunch;
  const PackArguments arguments = {
      .boxes = DevicePointer<const KernelBox>(places.lists() + offsetof(Lists, box)),
      .segments = DevicePointer<const PackSegment>(places.lists() + offsetof(Lists, segments)) +
                  (is_short ? 0 : 1),
      .segment_count = 1,
      .packed = DevicePointer<std::byte>(places.second()),
      .leaf_hashes = DevicePointer<uint64_t>(places.hashes())};
  const int64_t blocks = LeavesOf(0, is_short ? kShortBytes : places.packed);
  for (int64_t i = 0; i < (is_short ? kLaunches : running_->packs); ++i) {
    RETURN_IF_ERROR(ports_.gpu.Launch(pack_, blocks, arguments, *pack_stream_));
  }
  return packed_->Record(*pack_stream_);
}

absl::StatusOr<bool> GpuMeasurement::AdvanceSample() {
  if (running_->is_local()) return packed_->IsDone();
  ASSIGN_OR_RETURN(const Communicator::Progress progress, running_->communicator->Poll());
  if (progress == Communicator::Progress::kInProgress) return false;
  if (running_->groups_left > 0) {
    RETURN_IF_ERROR(Exchange());
    return false;
  }
  if (!std::exchange(running_->is_recorded, true)) RETURN_IF_ERROR(wired_->Record(*wire_stream_));
  return wired_->IsDone();
}

absl::Status GpuMeasurement::Exchange() {
  --running_->groups_left;
  const Places places(ports_.staging);
  const bool is_long = running_->work == Work::kExchange;
  const int64_t bytes = is_long ? places.exchanged : kShortBytes;
  const int64_t count = running_->work == Work::kMessages ? kMessages : 1;
  const int rank = running_->communicator->rank(), size = running_->communicator->size();
  const auto messages = [&](int peer, uint64_t address) {
    std::vector<RankMessage> list;
    for (int64_t i = 0; i < count; ++i) {
      list.push_back({.peer = peer, .address = address + i * bytes, .bytes = bytes});
    }
    return list;
  };
  return running_->communicator->Exchange(messages((rank + 1) % size, places.first),
                                          messages((rank + size - 1) % size, places.second()),
                                          wire_stream_->handle());
}

void GpuMeasurement::EndSample() {
  const double seconds = absl::ToDoubleSeconds(ports_.clock.Monotonic() - running_->begun);
  running_->is_sampling = false;
  if (!std::exchange(running_->is_warm, true)) {
    const double packs = kPackSeconds / std::max(seconds, 1e-9);
    running_->packs = std::clamp<int64_t>(static_cast<int64_t>(packs), 1, kPacksMax);
    return;
  }
  running_->samples.push_back(seconds);
  if (std::ssize(running_->samples) < kSamples) return;
  EndWork(MedianOf(std::exchange(running_->samples, {})));
  running_->is_warm = false;
  // A rank alone has nobody to exchange bytes with.
  if (running_->work == Work::kMessages && running_->is_alone()) running_->work = Work::kExchange;
  running_->work = static_cast<Work>(static_cast<uint8_t>(running_->work) + 1);
}

void GpuMeasurement::EndWork(double seconds) {
  const Places places(ports_.staging);
  v1::MeasureGpuResponse& figures = running_->figures;
  switch (running_->work) {
    case Work::kLaunch:
      figures.set_launch_ns(NsOf(seconds / kLaunches));
      break;
    case Work::kPack:
      figures.set_copy_bytes_per_second(RateOf(running_->packs * places.packed, seconds));
      break;
    case Work::kGroup:
      running_->group_seconds = seconds / kGroups;
      figures.set_group_ns(NsOf(running_->group_seconds));
      break;
    case Work::kMessages:
      figures.set_message_ns(NsOf((seconds / kGroups - running_->group_seconds) / (kMessages - 1)));
      break;
    case Work::kExchange:
      figures.set_exchange_bytes_per_second(RateOf(kExchanges * places.exchanged, seconds));
      figures.set_exchange_message_bytes(places.exchanged);
      break;
    case Work::kEnd:
      break;
  }
}

void GpuMeasurement::Fail(const absl::Status& why) {
  running_->failure = why;
  running_->state = Running::State::kStopping;
  // Peers may be in the middle of a group. Tells OnCommunicatorChange, maybe from inside.
  ports_.communicators.Stop(*running_->communicator, why);
}

void GpuMeasurement::OnCommunicatorChange(const Communicator& communicator, CommunicatorState state,
                                          const absl::Status& cause) {
  if (running_ == nullptr || running_->communicator != &communicator) return;
  if (state == CommunicatorState::kReady || state == CommunicatorState::kExchanging) return;
  if (running_->state == Running::State::kMeasuring) {
    running_->failure = absl::UnavailableError(
        absl::StrCat("the communicator is ", CommunicatorStateName(state), ": ", cause.message()));
    running_->state = Running::State::kStopping;
  }
  if (IsOver(state) && running_->state == Running::State::kStopping) OnCommunicatorOver(state);
}

// Before that NCCL may put more on the stream, after an event that is recorded now.
void GpuMeasurement::OnCommunicatorOver(CommunicatorState state) {
  running_->state = Running::State::kDraining;
  const bool is_recorded = state != CommunicatorState::kHung &&
                           packed_->Record(*pack_stream_).ok() &&
                           wired_->Record(*wire_stream_).ok();
  // The process ends then, which its own health says.
  if (!is_recorded) End(running_->failure);
}

void GpuMeasurement::End(absl::StatusOr<v1::MeasureGpuResponse> result) {
  const std::unique_ptr<Running> over = std::exchange(running_, nullptr);
  over->done(std::move(result));
}

}  // namespace crossmesh
