#include "worker/executor/local_work.h"

#include "worker/executor/local_channel.h"
#include "worker/executor/phase_timer.h"
#include "worker/executor/source_scales.h"
#include "worker/executor/task_context.h"

#include <algorithm>

namespace crossmesh {
namespace {

// Work between two looks at the transport.
constexpr int64_t kStepBytes = int64_t{1} << 20;
constexpr int kStepActionsMax = 64;

}  // namespace

LocalWork::LocalWork(TaskContext& context, SourceScales& scales)
    : context_(context), scales_(scales), by_channel_(context.part.channels().size()) {
  for (int32_t i = 0; i < std::ssize(by_channel_); ++i) {
    if (context.part.channels()[i].reach != PreparedPart::Reach::kLocal) continue;
    channels_.push_back(std::make_unique<LocalChannel>(context, i));
    by_channel_[i] = channels_.back().get();
  }
  for (const PreparedPart::Copy& copy : context.part.copies()) copies_.emplace_back(context, copy);
}

LocalWork::~LocalWork() = default;

void LocalWork::Rewind() {
  for (const auto& channel : channels_) channel->Rewind();
  for (DeviceCopy& copy : copies_) copy.Rewind();
}

void LocalWork::OnProgress(const PreparedPart::Out& out) {
  by_channel_[out.channel]->OnProgress(out.entry);
}

bool LocalWork::Step() {
  if (scales_.idle()) return Copy();
  ComputeScales();
  return true;
}

void LocalWork::ComputeScales() {
  const PhaseTimer timer(context_.report.seconds.pack);
  for (int64_t bytes = 0; bytes < kStepBytes && !scales_.idle();) {
    const SourceScales::Progress progress = scales_.Step();
    bytes += progress.read_bytes;
    if (progress.done.has_value()) context_.progress.OnSourceReady(*progress.done);
  }
}

bool LocalWork::Copy() {
  const size_t count = channels_.size() + copies_.size();
  int64_t bytes = 0;
  size_t idle = 0;  // in a row; when all are, there is nothing to do
  for (int actions = 0; idle < count; ++actions) {
    if (bytes >= kStepBytes || actions == kStepActionsMax) return true;
    const size_t i = next_++ % count;
    const int64_t moved =
        i < channels_.size() ? channels_[i]->Step() : copies_[i - channels_.size()].Step();
    if (moved < 0) {
      ++idle;
    } else {
      bytes += moved;
      idle = 0;
    }
  }
  return false;
}

bool LocalWork::finished() const { return std::ranges::all_of(copies_, &DeviceCopy::finished); }

}  // namespace crossmesh
