#include "worker/courses/course_replayer.h"

#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "worker/courses/course_replays.h"
#include "worker/executor/prepared_part.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

CourseReplayer::CourseReplayer(Ports ports) : ports_(ports) {}

CourseReplayer::~CourseReplayer() = default;

absl::Status CourseReplayer::StartReplays(ReplaySpec spec, ReplayObserver& observer) {
  if (!spec.part->part().has_courses()) {
    return ports_.others.StartReplays(std::move(spec), observer);
  }
  const ReplayKey key = spec.key;
  if (Find(key) != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat("replays of operation ", key.operation, ", plan ",
                                                 key.plan, " were started before"));
  }
  RETURN_IF_ERROR(CourseReplays::Check(spec));
  auto& replays = replays_[key];
  replays = std::make_unique<CourseReplays>(
      CourseReplays::Ports{
          .loop = ports_.loop,
          .steps = ports_.others,
          .counters = ports_.counters,
          .observer = observer,
          // Not from inside a call of the replays.
          .over = [this, key] { ports_.loop.Post([this, key] { replays_.erase(key); }); }},
      spec);
  return replays->Start();
}

void CourseReplayer::Replay(const ReplayKey& key, int32_t buffer, uint32_t instance) {
  if (CourseReplays* const replays = Find(key)) return replays->Replay(buffer, instance);
  ports_.others.Replay(key, buffer, instance);
}

void CourseReplayer::ReplaySourceHere(const ReplayKey& key, uint32_t instance) {
  if (CourseReplays* const replays = Find(key)) return replays->SourceHere(instance);
  ports_.others.ReplaySourceHere(key, instance);
}

void CourseReplayer::StopReplays(const ReplayKey& key, const absl::Status& why,
                                 uint32_t next_instance) {
  if (CourseReplays* const replays = Find(key)) return replays->Stop(why, next_instance);
  ports_.others.StopReplays(key, why, next_instance);
}

CourseReplays* CourseReplayer::Find(const ReplayKey& key) const {
  const auto found = replays_.find(key);
  return found == replays_.end() ? nullptr : found->second.get();
}

}  // namespace crossmesh
