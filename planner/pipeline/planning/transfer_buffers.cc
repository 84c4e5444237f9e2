#include "planner/pipeline/planning/transfer_buffers.h"

#include "planner/pipeline/memory.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

namespace crossmesh {
namespace {

// The most spans that there are at one time; one that ends when another begins is not there with
// it.
int32_t MostAtOnce(const std::vector<TimeSpan>& spans) {
  std::vector<std::pair<double, int32_t>> changes;
  for (const TimeSpan& span : spans) {
    changes.emplace_back(span.begin, 1);
    changes.emplace_back(span.end, -1);
  }
  // At equal times ends sort before begins: a buffer that is given back may be taken at once.
  std::ranges::sort(changes);
  int32_t there = 0, most = 0;
  for (const auto& [time, change] : changes) {
    there += change;
    most = std::max(most, there);
  }
  return most;
}

}  // namespace

std::vector<int32_t> NeededBuffers(const OpTable& ops, const PipelineTimeline& run,
                                   const std::vector<int64_t>& samples,
                                   const std::vector<EdgePlan>& plans) {
  std::vector<int32_t> buffers;
  for (const EdgePlan& plan : plans) {
    std::vector<TimeSpan> sent, received;
    for (MicrobatchIndex m = 0; m < std::ssize(samples); ++m) {
      if (samples[m] != plan.samples) continue;
      const TimeSpan& passing = run.messages[ops.MessageOf(plan.transfer, m)];
      sent.push_back({run.ops[ops.ProducerOf(plan.transfer, m)].begin, passing.end});
      received.push_back({passing.begin, run.ops[ops.ConsumerOf(plan.transfer, m)].end});
    }
    const int32_t most = std::max(MostAtOnce(sent), MostAtOnce(received));
    // One more than the run needs, so that a message that is late holds up no other.
    buffers.push_back(std::min(most + 1, static_cast<int32_t>(sent.size())));
  }
  return buffers;
}

std::vector<MicrobatchIndex> MessagesOf(const OpTable& ops, const EdgePlan& plan,
                                        const std::vector<int64_t>& samples) {
  std::vector<MicrobatchIndex> messages;
  const RankIndex rank = ops.rank_of(ops.ProducerOf(plan.transfer, 0));
  for (OpIndex op = ops.first(rank); op < ops.first(rank + 1); ++op) {
    const MicrobatchIndex m = ops.op(op).microbatch;
    if (ops.ProducerOf(plan.transfer, m) == op && samples[m] == plan.samples) messages.push_back(m);
  }
  return messages;
}

MessagePlaces PlacesOf(const OpTable& ops, const std::vector<int64_t>& samples,
                       const std::vector<EdgePlan>& plans, const std::vector<int32_t>& buffers) {
  MessagePlaces places(ops.messages(), OpTable::kNone);
  for (size_t i = 0; i < plans.size(); ++i) {
    const std::vector<MicrobatchIndex> messages = MessagesOf(ops, plans[i], samples);
    for (size_t k = buffers[i]; k < messages.size(); ++k) {
      places[ops.MessageOf(plans[i].transfer, messages[k])] =
          ops.MessageOf(plans[i].transfer, messages[k - buffers[i]]);
    }
  }
  return places;
}

void SetBufferBytes(const std::vector<EdgePlan>& plans, const std::vector<int32_t>& buffers,
                    PipelineProfile& profile) {
  for (EdgeProfile& edge : profile.edges) {
    edge.from_buffer_bytes = edge.to_buffer_bytes = ByteCount(0);
  }
  for (size_t i = 0; i < plans.size(); ++i) {
    EdgeProfile& edge = profile.edges[plans[i].transfer / 2];
    const bool is_forward = OpTable::IsForward(plans[i].transfer);
    ByteCount& sender = is_forward ? *edge.from_buffer_bytes : *edge.to_buffer_bytes;
    ByteCount& receiver = is_forward ? *edge.to_buffer_bytes : *edge.from_buffer_bytes;
    sender += int64_t{buffers[i]} * plans[i].sender_bytes;
    receiver += int64_t{buffers[i]} * plans[i].receiver_bytes;
  }
}

void FitBuffers(const OpTable& ops, const std::vector<EdgePlan>& plans,
                std::vector<int32_t>& buffers, PipelineProfile& profile) {
  const std::vector<RankMemory> peak = PeakMemory(ops);
  for (;;) {
    SetBufferBytes(plans, buffers, profile);
    const std::vector<RankMemory> fixed = FixedMemory(profile);
    const auto is_over = [&](StageIndex stage) {
      const RankIndex rank = profile.stages[stage].rank;
      const std::optional<ByteCount>& most = profile.rank_bytes_max[rank];
      return most && fixed[rank].bytes() + peak[rank].activation_bytes > *most;
    };
    size_t fullest = plans.size();
    for (size_t i = 0; i < plans.size(); ++i) {
      const EdgeProfile& edge = profile.edges[plans[i].transfer / 2];
      if (buffers[i] == 1 || (!is_over(edge.from) && !is_over(edge.to))) continue;
      // Taken from where there are most: the last buffer of a transfer is the one it cannot do
      // without.
      if (fullest == plans.size() || buffers[i] > buffers[fullest]) fullest = i;
    }
    if (fullest == plans.size()) return;
    --buffers[fullest];
  }
}

}  // namespace crossmesh
