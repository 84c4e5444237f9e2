#include "planner/pipeline/planning/transfer_buffers.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

namespace crossmesh {
namespace {

// Begins and ends of what is there for a time.
struct Stays {
  std::vector<double> begins, ends;

  void Add(double begin, double end) {
    begins.push_back(begin);
    ends.push_back(end);
  }
};

// The most that there are at one time; one that ends when another begins is not there with it: a
// buffer that is given back may be taken at once.
int32_t MostAtOnce(Stays stays) {
  for (std::vector<double>* times : {&stays.begins, &stays.ends}) {
    // Nearly always they are, since messages keep to one order.
    if (!std::ranges::is_sorted(*times)) std::ranges::sort(*times);
  }
  int32_t most = 0, ended = 0, begun = 0;
  for (const double begin : stays.begins) {
    ++begun;
    while (ended < std::ssize(stays.ends) && stays.ends[ended] <= begin) ++ended;
    most = std::max(most, begun - ended);
  }
  return most;
}

}  // namespace

std::vector<int32_t> NeededBuffers(const OpTable& ops, const PipelineTimeline& run,
                                   const std::vector<int64_t>& samples,
                                   const std::vector<EdgePlan>& plans) {
  std::vector<int32_t> buffers;
  for (const EdgePlan& plan : plans) {
    Stays sent, received;
    for (MicrobatchIndex m = 0; m < std::ssize(samples); ++m) {
      if (samples[m] != plan.samples) continue;
      const TimeSpan& passing = run.messages[ops.MessageOf(plan.transfer, m)];
      sent.Add(run.ops[ops.ProducerOf(plan.transfer, m)].begin, passing.end);
      received.Add(passing.begin, run.ops[ops.ConsumerOf(plan.transfer, m)].end);
    }
    const auto messages = static_cast<int32_t>(sent.begins.size());
    const int32_t most = std::max(MostAtOnce(std::move(sent)), MostAtOnce(std::move(received)));
    // One more than the run needs, so that a message that is late holds up no other.
    buffers.push_back(std::min(most + 1, messages));
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

void FitBuffers(const std::vector<RankMemory>& peak, const std::vector<EdgePlan>& plans,
                std::vector<int32_t>& buffers, PipelineProfile& profile) {
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
