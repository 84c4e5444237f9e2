#include "worker/courses/course_steps.h"

#include "worker/executor/prepared_part.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

void AddLink(const LinkReport& link, std::vector<LinkReport>& links) {
  const auto known = std::ranges::find(links, link.peer, &LinkReport::peer);
  if (known == links.end()) return links.push_back(link);
  known->sent_bytes += link.sent_bytes;
  known->busy_seconds += link.busy_seconds;
}

}  // namespace

absl::Status CheckReplayable(const WorkerPart& part, uint32_t plan) {
  if (!part.has_courses()) return absl::OkStatus();
  const std::vector<Course<WorkerPart>>& courses = part.courses();
  const auto refused = [](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", why...));
  };
  if (courses.size() != 1 || courses.front().instances != 1) {
    return refused("at most one course, of one instance, found ", courses.size(), " of ",
                   courses.empty() ? 0 : courses.front().instances);
  }
  if (courses.front().releases_source) {
    return refused("a course that keeps its source, found one that gives it up");
  }
  if (std::ranges::any_of(courses.front().steps, &Course<WorkerPart>::Step::adds_own)) {
    return refused("sums in one step, found some that go round a ring");
  }
  if (plan < kPlansMax) return absl::OkStatus();
  return refused("a plan below ", kPlansMax, " for a part with a course, found ", plan);
}

ReplayKey KeyOfStep(const ReplayKey& part, int32_t step) {
  ReplayKey key = part;
  key.plan += kPlansMax * static_cast<uint32_t>(step + 1);
  return key;
}

int32_t StepOfKey(const ReplayKey& part, uint32_t plan) {
  return static_cast<int32_t>((plan - part.plan) / kPlansMax) - 1;
}

ReplaySpec ReplaysOfStep(const TaskSpec& task, int32_t step,
                         std::shared_ptr<const PreparedPart> part) {
  ReplaySpec replays{.key = KeyOfStep(ReplayKeyOf(task.key), step),
                     .token_high = task.token_high,
                     .token_low = task.token_low,
                     .part = std::move(part),
                     .peers = task.peers,
                     .checksums = task.checksums,
                     .stall_limit = task.stall_limit};
  const TensorTable& whole = task.part->part().tensors();
  const std::vector<DeviceId>& devices = replays.part->part().tensors().devices();
  for (DeviceRank rank = 0; rank < std::ssize(devices); ++rank) {
    const std::optional<DeviceRank> of_whole = whole.FindDevice(devices[rank]);
    if (!of_whole.has_value()) continue;
    const auto peer = task.peer_of_device.find(*of_whole);
    if (peer != task.peer_of_device.end()) replays.peer_of_device[rank] = peer->second;
  }
  return replays;
}

std::vector<StepKind> KindsOf(const Course<WorkerPart>& course) {
  std::vector<StepKind> kinds;
  for (const Course<WorkerPart>::Step& step : course.steps) {
    // The tiles of a ring's steps are given one by one.
    kinds.push_back(step.adds_own ? StepKind::kReduceScatter
                                  : FindStepKind(step.move->tensors(), step.reduction));
  }
  return kinds;
}

void AddToReport(const TaskReport& step, TaskReport& whole) {
  for (const std::string& peer : step.lost_peers) {
    if (std::ranges::find(whole.lost_peers, peer) == whole.lost_peers.end()) {
      whole.lost_peers.push_back(peer);
    }
  }
  whole.first_loss.Update(step.first_loss);
  whole.sent_bytes += step.sent_bytes;
  whole.received_bytes += step.received_bytes;
  whole.copied_bytes += step.copied_bytes;
  whole.seconds.bind = std::max(whole.seconds.bind, step.seconds.bind);
  whole.seconds.pack += step.seconds.pack;
  whole.seconds.unpack += step.seconds.unpack;
  whole.seconds.checksum += step.seconds.checksum;
  for (const LinkReport& link : step.links) AddLink(link, whole.links);
}

}  // namespace crossmesh
