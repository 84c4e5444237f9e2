#include "worker/courses/course_replays.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "common/plan/course.h"
#include "worker/courses/course_steps.h"
#include "worker/executor/phase_timer.h"
#include "worker/executor/prepared_part.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// What is sent for any instance is dropped.
constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();

std::vector<bool> ReducesOf(const Course<WorkerPart>& course) {
  std::vector<bool> reduces;
  for (const auto& step : course.steps) reduces.push_back(step.reduction.has_value());
  return reduces;
}

template <typename... Parts>
absl::Status Refused(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("replays of steps: expected ", parts...));
}

absl::Status CheckArrays(const ReplaySpec& spec) {
  const WorkerPart& part = spec.part->part();
  for (const ReplaySpec::Buffer& buffer : spec.buffers) {
    for (const DeviceRank device : part.spec().devices) {
      const DeviceId& name = part.tensors().devices()[device];
      const int64_t bytes = ArrayBytesOf(part, name, CourseRunner::kHost);
      if (bytes == 0 || buffer.arrays.contains(device)) continue;
      return Refused("memory for ", bytes, " bytes between steps at device ", ToString(name),
                     ", found none");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CourseReplays::Check(const ReplaySpec& spec) {
  RETURN_IF_ERROR(CheckReplayable(spec.part->part(), spec.key.plan));
  if (spec.buffers.empty()) return Refused("buffers, found none");
  return CheckArrays(spec);
}

CourseReplays::Buffer::Buffer(TaskSpec of_task, const Course<WorkerPart>& course,
                              const absl::flat_hash_map<DeviceRank, std::byte*>& arrays)
    : task(std::move(of_task)),
      places(
          task, course,
          [&](const DeviceId& device) {
            const auto found = arrays.find(*task.part->part().tensors().FindDevice(device));
            return found == arrays.end() ? nullptr : found->second;
          },
          CourseRunner::kHost),
      reductions(course.steps.size()),
      told(task.part->destinations().size()) {
  for (int32_t step = 0; step < std::ssize(course.steps); ++step) {
    const auto& reduction = course.steps[step].reduction;
    if (reduction.has_value()) reductions[step].emplace(places.ReducingOf({step, 0}), *reduction);
  }
}

CourseReplays::CourseReplays(Ports ports, const ReplaySpec& spec)
    : ports_(std::move(ports)),
      key_(spec.key),
      first_instance_(spec.first_instance),
      kinds_(KindsOf(spec.part->part().courses()[0])),
      progress_(ReducesOf(spec.part->part().courses()[0]),
                static_cast<int32_t>(spec.buffers.size())) {
  const Course<WorkerPart>& course = spec.part->part().courses()[0];
  for (const ReplaySpec::Buffer& buffer : spec.buffers) {
    buffers_.push_back(std::make_unique<Buffer>(TaskOf(spec, buffer), course, buffer.arrays));
  }
  const WorkerPart& part = spec.part->part();
  for (const DeviceRank device : part.spec().devices) {
    array_bytes_ += ArrayBytesOf(part, part.tensors().devices()[device], CourseRunner::kHost) *
                    std::ssize(buffers_);
  }
  for (const DeviceRank device : spec.part->destinations()) {
    destination_bytes_.push_back(part.tensors().BytesOf(Side::kDestination, device));
  }
  reducing_.reserve(buffers_.size() * course.steps.size());
  ports_.counters.AddArrays(array_bytes_);
}

CourseReplays::~CourseReplays() { ports_.counters.AddArrays(-array_bytes_); }

const Course<WorkerPart>& CourseReplays::course() const { return part().part().courses()[0]; }

ReplayKey CourseReplays::KeyOf(int32_t step) const { return KeyOfStep(key_, step); }

absl::Status CourseReplays::Start() {
  absl::Status started;
  for (int32_t step = 0; step < steps() && started.ok(); ++step) {
    started = StartStep(step);
    if (started.ok()) ++started_;
  }
  if (started.ok()) return started;
  is_silent_ = is_stopping_ = true;
  End(started, first_instance_);
  return started;
}

absl::Status CourseReplays::StartStep(int32_t step) {
  ReplaySpec replays = ReplaysOfStep(buffers_.front()->task, step, part().courses()[0][step]);
  replays.first_instance = first_instance_;
  replays.leaves_own = buffers_.front()->places.LeavesOwn(step);
  for (const auto& buffer : buffers_) {
    const CourseProgress::At at{.step = step};
    replays.buffers.push_back({.sources = buffer->places.Of(at, Side::kSource),
                               .destinations = buffer->places.Of(at, Side::kDestination)});
  }
  return ports_.steps.StartReplays(std::move(replays), *this);
}

void CourseReplays::Replay(int32_t buffer, uint32_t instance) {
  if (end_.has_value()) return;
  Buffer& of = *buffers_[buffer];
  of.report.key = key_.OfInstance(instance);
  of.report.status = of.report.first_loss = absl::OkStatus();
  of.report.lost_peers.clear();
  of.report.links.clear();
  of.report.sent_bytes = of.report.received_bytes = of.report.copied_bytes = 0;
  of.report.seconds = {};
  of.told.assign(of.told.size(), false);
  progress_.Open(buffer);
  // Others give what this worker gets.
  if (of.task.awaited_sources.empty()) progress_.OnSource(buffer);
  Drive();
}

void CourseReplays::SourceHere(uint32_t instance) {
  if (end_.has_value()) return;
  const auto at = PlaceOf(key_.OfInstance(instance));
  if (!at.has_value()) return;
  progress_.OnSource(at->buffer);
  Drive();
}

std::optional<MessageSteps::At> CourseReplays::PlaceOf(const TaskKey& key) const {
  for (const int32_t buffer : progress_.open()) {
    if (buffers_[buffer]->report.key.instance != key.instance) continue;
    return MessageSteps::At{.step = StepOfKey(key_, key.plan), .buffer = buffer};
  }
  return std::nullopt;
}

void CourseReplays::Drive() {
  const auto instance_of = [this](MessageSteps::At at) {
    return buffers_[at.buffer]->report.key.instance;
  };
  while (const auto at = progress_.Begin()) {
    ports_.steps.Replay(KeyOf(at->step), at->buffer, instance_of(*at));
  }
  while (const auto at = progress_.Feed()) {
    ports_.steps.ReplaySourceHere(KeyOf(at->step), instance_of(*at));
  }
  while (const auto at = progress_.Reduce()) {
    buffers_[at->buffer]->reductions[at->step]->Rewind();
    reducing_.push_back(*at);
    PostReduction();
  }
}

void CourseReplays::PostReduction() {
  if (std::exchange(is_reducing_, true)) return;
  ports_.loop.Post([this] {
    is_reducing_ = false;
    ReduceSome();
  });
}

void CourseReplays::ReduceSome() {
  if (end_.has_value()) return Settle();
  const MessageSteps::At at = reducing_.front();
  Buffer& buffer = *buffers_[at.buffer];
  StepReduction& reduction = *buffer.reductions[at.step];
  {
    const PhaseTimer timer(buffer.report.seconds.unpack);
    ports_.counters.reduced_bytes += reduction.ReducePiece();
  }
  if (!reduction.done()) return PostReduction();
  reducing_.erase(reducing_.begin());
  if (!reducing_.empty()) PostReduction();
  progress_.OnReduced(at);
  Drive();
  if (progress_.IsDone(at.buffer)) TellDone(at.buffer, absl::OkStatus());
}

void CourseReplays::OnDeviceDone(const TaskKey& key, const DeviceReport& report) {
  const auto at = PlaceOf(key);
  if (!at.has_value() || end_.has_value()) return;
  const DeviceId& name = course().steps[at->step].move->tensors().devices()[report.device];
  const DeviceRank device = *part().part().tensors().FindDevice(name);
  Buffer& buffer = *buffers_[at->buffer];
  if (report.status.ok()) {
    // What is in place may be used, whatever this worker has yet to send.
    const bool is_last = at->step + 1 == steps() && !course().steps[at->step].reduction.has_value();
    if (is_last) TellDevice(buffer, device, absl::OkStatus());
    return;
  }
  const absl::Status why = At(absl::StrCat("step ", at->step + 1, " of ", steps()), report.status);
  buffer.report.status.Update(why);
  TellDevice(buffer, device, why);
  End(why, kNever);
}

void CourseReplays::OnTaskDone(const TaskReport& report) {
  const auto at = PlaceOf(report.key);
  if (!at.has_value()) return;
  Buffer& buffer = *buffers_[at->buffer];
  AddToReport(report, buffer.report);
  if (at->step == 0) buffer.report.seconds.first_byte = report.seconds.first_byte;
  progress_.OnMoved(*at);
  if (end_.has_value()) return Settle();
  absl::Status outcome = report.status;
  // A worker that only sends has no device that could fail.
  outcome.Update(report.first_loss);
  if (!outcome.ok()) {
    outcome = At(absl::StrCat("step ", at->step + 1, " of ", steps()), outcome);
    buffer.report.status.Update(outcome);
    return End(outcome, kNever);
  }
  ports_.counters.CountSteps(kinds_[at->step]);
  Drive();
  if (progress_.IsDone(at->buffer)) TellDone(at->buffer, absl::OkStatus());
}

void CourseReplays::TellDevice(Buffer& buffer, DeviceRank device, const absl::Status& status) {
  const std::vector<DeviceRank>& destinations = part().destinations();
  const auto found = std::ranges::lower_bound(destinations, device);
  if (found == destinations.end() || *found != device) return;
  const auto place = found - destinations.begin();
  std::vector<bool>::reference told = buffer.told[place];
  if (told || is_silent_) return;
  told = true;
  DeviceReport report{.device = device, .status = status};
  if (status.ok()) report.bytes = destination_bytes_[place];
  ports_.observer.OnDeviceDone(buffer.report.key, report);
}

void CourseReplays::TellDone(int32_t index, const absl::Status& status) {
  Buffer& buffer = *buffers_[index];
  for (const DeviceRank device : part().destinations()) TellDevice(buffer, device, status);
  progress_.Close(index);
  if (!is_silent_) ports_.observer.OnTaskDone(buffer.report);
}

void CourseReplays::OnPeerStopped(const ReplayKey& /*key*/, absl::string_view worker) {
  if (!is_silent_) ports_.observer.OnPeerStopped(key_, worker);
}

void CourseReplays::Stop(const absl::Status& why, uint32_t next_instance) {
  if (std::exchange(is_stopping_, true)) return;
  if (end_.has_value()) return PostSettle();
  for (const int32_t buffer : progress_.open()) buffers_[buffer]->report.status.Update(why);
  End(why, next_instance);
}

void CourseReplays::End(const absl::Status& why, uint32_t next_instance) {
  if (end_.has_value()) return;
  end_ = why;
  reducing_.clear();
  for (int32_t step = 0; step < steps(); ++step) {
    ports_.steps.StopReplays(KeyOf(step), why, next_instance);
  }
  PostSettle();
}

void CourseReplays::OnReplaysStopped(const ReplayKey& /*key*/) {
  --started_;
  Settle();
}

void CourseReplays::PostSettle() {
  // It may be over by then, but is destroyed only after that.
  ports_.loop.Post([this] { Settle(); });
}

void CourseReplays::Settle() {
  for (size_t place = 0; place < progress_.open().size();) {
    const int32_t buffer = progress_.open()[place];
    progress_.moving(buffer) > 0 ? static_cast<void>(++place) : TellDone(buffer, *end_);
  }
  const bool runs = started_ > 0 || is_reducing_ || !progress_.open().empty();
  if (!is_stopping_ || runs || std::exchange(is_over_, true)) return;
  if (!is_silent_) ports_.observer.OnReplaysStopped(key_);
  ports_.over();
}

}  // namespace crossmesh
