#include "worker/courses/course_task.h"

#include "common/base/digest_builder.h"
#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "common/plan/course.h"
#include "worker/courses/course_steps.h"
#include "worker/executor/phase_timer.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/replay_runner.h"

#include <limits>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

CourseProgress::Settings SettingsOf(const Course<WorkerPart>& course, const TaskSpec& task) {
  CourseProgress::Settings settings{.instances = course.instances,
                                    .buffers = course.buffers,
                                    .awaits_source = !task.awaited_sources.empty()};
  for (const Course<WorkerPart>::Step& step : course.steps) {
    settings.reduces.push_back(step.reduction.has_value());
  }
  return settings;
}

}  // namespace

CourseTask::Running::Running(const TaskSpec& task, const Course<WorkerPart>& course,
                             const ArrayMemory& memory)
    : progress(SettingsOf(course, task)),
      places(
          task, course, [&memory](const DeviceId& device) { return memory.of(device); },
          CourseRunner::kHost),
      kinds(KindsOf(course)) {}

CourseTask::CourseTask(Ports ports, TaskSpec spec, ArrayMemory memory)
    : ports_(std::move(ports)),
      spec_(std::move(spec)),
      memory_(std::move(memory)),
      awaited_sources_(spec_.awaited_sources),
      begun_(std::chrono::steady_clock::now()),
      report_{.key = spec_.key},
      tiles_(ports_.release) {
  ports_.counters.AddArrays(memory_.bytes());
  for (const Course<WorkerPart>& course : spec_.part->part().courses()) {
    courses_.push_back(std::make_unique<Running>(spec_, course, memory_));
    courses_.back()->first_step = steps_;
    steps_ += static_cast<int32_t>(course.steps.size());
  }
}

CourseTask::~CourseTask() { ports_.counters.AddArrays(-memory_.bytes()); }

absl::Status CourseTask::Start() {
  absl::Status started;
  for (size_t c = 0; c < courses_.size() && started.ok(); ++c) {
    const Course<WorkerPart>& course = spec_.part->part().courses()[c];
    for (int32_t k = 0; k < std::ssize(course.steps) && started.ok(); ++k) {
      started = StartStep(c, k);
      if (started.ok()) ++started_;
    }
  }
  if (!started.ok() && started_ == 0) return started;
  deadline_ = ports_.loop.RunAfter(spec_.deadline, [this] {
    Cancel(absl::DeadlineExceededError(
        absl::StrCat("deadline of ", absl::FormatDuration(spec_.deadline), " has passed")));
  });
  // Observers are not called from inside Start.
  ports_.loop.Post([this, started] {
    if (!started.ok()) return Cancel(started);
    EmptyDestinations();
    Drive();
  });
  return absl::OkStatus();
}

absl::Status CourseTask::StartStep(size_t c, int32_t step) {
  const Course<WorkerPart>& course = spec_.part->part().courses()[c];
  const CoursePlaces& places = courses_[c]->places;
  ReplaySpec replay =
      ReplaysOfStep(spec_, courses_[c]->first_step + step, spec_.part->courses()[c][step]);
  replay.leaves_own = places.LeavesOwn(step);
  const int32_t buffers = HasInstanceBuffers(course, step) ? course.instances : course.buffers;
  for (int32_t instance = 0; instance < buffers; ++instance) {
    const CourseProgress::At at{.step = step, .instance = instance};
    replay.buffers.push_back({.sources = places.Of(at, Side::kSource),
                              .destinations = places.Of(at, Side::kDestination)});
  }
  return ports_.replays.StartReplays(std::move(replay), *this);
}

ReplayKey CourseTask::KeyOf(int32_t step) const { return KeyOfStep(ReplayKeyOf(spec_.key), step); }

int32_t CourseTask::StepOf(const TaskKey& key) const {
  return StepOfKey(ReplayKeyOf(spec_.key), key.plan);
}

const Course<WorkerPart>& CourseTask::course() const {
  return spec_.part->part().courses()[course_];
}

// Tiles lie elsewhere for each instance; arrays take turns.
bool CourseTask::HasInstanceBuffers(const Course<WorkerPart>& course, int32_t step) const {
  return step == 0 || step + 1 == std::ssize(course.steps);
}

int32_t CourseTask::BufferOf(CourseProgress::At at) const {
  return HasInstanceBuffers(course(), at.step) ? at.instance : at.instance % course().buffers;
}

void CourseTask::Drive() {
  if (is_stopping_) return;
  while (running().progress.done()) {
    if (++course_ == courses_.size()) return Stop(absl::OkStatus());
  }
  CourseProgress& progress = running().progress;
  const auto key_of = [&](CourseProgress::At at) { return KeyOf(running().first_step + at.step); };
  while (const auto at = progress.Begin()) {
    ports_.replays.Replay(key_of(*at), BufferOf(*at), static_cast<uint32_t>(at->instance));
  }
  while (const auto at = progress.Feed()) {
    ports_.replays.ReplaySourceHere(key_of(*at), static_cast<uint32_t>(at->instance));
  }
  while (const auto at = progress.Reduce()) {
    reducing_.push_back(
        {*at, {running().places.ReducingOf(*at), *course().steps[at->step].reduction}});
    PostReduction();
  }
}

void CourseTask::SourceHere(DeviceRank device) {
  if (awaited_sources_.erase(device) == 0 || !awaited_sources_.empty()) return;
  for (const auto& running : courses_) running->progress.OnSource();
  Drive();
}

void CourseTask::PostReduction() {
  if (std::exchange(is_reducing_, true)) return;
  ports_.loop.Post([this] {
    is_reducing_ = false;
    ReduceSome();
  });
}

void CourseTask::ReduceSome() {
  if (is_stopping_) {
    reducing_.clear();
    if (started_ == 0) Finish();
    return;
  }
  Work& work = reducing_.front();
  {
    const PhaseTimer timer(report_.seconds.unpack);
    ports_.counters.reduced_bytes += work.reduction.ReducePiece();
  }
  if (!work.reduction.done()) return PostReduction();
  const CourseProgress::At at = work.at;
  reducing_.pop_front();
  if (!reducing_.empty()) PostReduction();
  running().progress.OnReduced(at);
  Drive();
}

void CourseTask::OnDeviceDone(const TaskKey& key, const DeviceReport& report) {
  if (!report.status.ok()) {
    failure_.Update(report.status);
    return;
  }
  if (!spec_.checksums) return;
  const int32_t step = StepOf(key);
  const Course<WorkerPart>& of = course();
  const DeviceId& name =
      of.steps[step - running().first_step].move->tensors().devices()[report.device];
  digests_[*spec_.part->part().tensors().FindDevice(name)][{step, key.instance}] = report.digest;
}

void CourseTask::OnTaskDone(const TaskReport& report) {
  AddToReport(report, report_);
  if (is_stopping_) return;
  report_.status.Update(report.status);
  if (!report.status.ok() || !failure_.ok()) {
    return Stop(failure_.ok() ? report.status : failure_);
  }
  const CourseProgress::At moved{.step = StepOf(report.key) - running().first_step,
                                 .instance = static_cast<int32_t>(report.key.instance)};
  ports_.counters.CountSteps(running().kinds[moved.step]);
  // Before anything else may take the memory.
  if (const absl::Status status = ReleaseSource(moved); !status.ok()) return Cancel(status);
  running().progress.OnMoved(moved);
  Drive();
}

void CourseTask::EmptyDestinations() {
  if (!course().releases_source) return;
  const absl::Status status = tiles_.EmptyDestinations(spec_);
  if (!status.ok()) Cancel(status);
}

absl::Status CourseTask::ReleaseSource(CourseProgress::At moved) {
  if (moved.step != 0 || !course().releases_source) return absl::OkStatus();
  return tiles_.Release(running().places.SourceRowsOf(moved.instance));
}

void CourseTask::Cancel(const absl::Status& why) {
  if (is_stopping_) return;
  report_.status.Update(why);
  Stop(why);
}

void CourseTask::LosePeer(absl::string_view worker, const absl::Status& why) {
  for (const TaskPeer& peer : spec_.peers) {
    if (peer.worker == worker) return Stop(why);
  }
}

void CourseTask::Stop(const absl::Status& why) {
  if (std::exchange(is_stopping_, true)) return;
  failure_.Update(why);
  const absl::Status cause = why.ok() ? absl::CancelledError("all instances are over") : why;
  for (int32_t step = 0; step < steps_; ++step) {
    if (!why.ok()) ports_.replays.TellStopped(KeyOf(step));
    ports_.replays.StopReplays(KeyOf(step), cause, std::numeric_limits<uint32_t>::max());
  }
}

// Why, it has reported by itself.
void CourseTask::OnPeerStopped(const ReplayKey& /*key*/, absl::string_view worker) {
  Stop(absl::UnavailableError(absl::StrCat("worker ", worker, " has ended its part")));
}

void CourseTask::OnReplaysStopped(const ReplayKey& /*key*/) {
  // A reduction that the loop is to go on with ends there.
  if (--started_ == 0 && !is_reducing_) Finish();
}

void CourseTask::Finish() {
  ports_.loop.Cancel(deadline_);
  report_.seconds.move =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  report_.released_sources = tiles_.released();
  for (const DeviceRank device : spec_.part->destinations()) {
    DeviceReport of_device{.device = device, .status = failure_};
    if (failure_.ok()) {
      of_device.bytes = spec_.part->part().tensors().BytesOf(Side::kDestination, device);
      of_device.digest = DigestOf(device);
    }
    report_.devices.push_back(of_device);
    ports_.observer.OnDeviceDone(spec_.key, of_device);
  }
  ports_.observer.OnTaskDone(report_);
  ports_.over();
}

// Over what every step of every instance brought it.
Digest CourseTask::DigestOf(DeviceRank device) const {
  const auto of_device = digests_.find(device);
  if (of_device == digests_.end()) return {};
  DigestBuilder builder;
  for (const auto& [at, digest] : of_device->second) builder.AddDigest(digest);
  return builder.Finish();
}

}  // namespace crossmesh
