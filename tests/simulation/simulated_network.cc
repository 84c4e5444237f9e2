#include "tests/simulation/simulated_network.h"

#include <algorithm>

namespace crossmesh {
namespace {

absl::Status Lost() { return absl::UnavailableError("keepalive watchdog timeout"); }

}  // namespace

template <typename Action>
void SimulatedNetwork::Transmit(const std::shared_ptr<SimulatedStream>& stream, int from,
                                Action arrive) {
  SimulatedStream::Side& to = stream->ends_[1 - from];
  to.last_arrival = std::max(world_.now() + Latency(), to.last_arrival);
  const Direction direction = {stream->ends_[from].node->index(), to.node->index()};
  world_.After(to.last_arrival - world_.now(),
               [this, direction, arrive = std::move(arrive)]() mutable {
                 Arrive(direction, std::move(arrive));
               });
}

template <typename Action>
void SimulatedNetwork::Arrive(Direction direction, Action arrive) {
  if (clogged_.empty()) return arrive();
  const auto clogging = clogged_.find(direction);
  if (clogging == clogged_.end()) return arrive();
  clogging->second.held.push_back(std::move(arrive));
}

SimulatedStream::SimulatedStream(SimulatedNetwork& network, uint64_t number, SimulatedNode& client,
                                 SimulatedNode& server)
    : network_(network), number_(number) {
  ends_[0] = {.node = &client, .life = client.life()};
  ends_[1] = {.node = &server, .life = server.life()};
}

void SimulatedStream::Send(int side, absl::string_view label, std::function<void()> deliver) {
  if (!ends_[side].is_open || !ends_[side].node->HaveEffect()) return;
  network_.Transmit(
      shared_from_this(), side,
      [self = shared_from_this(), to = 1 - side, label, deliver = std::move(deliver)]() mutable {
        Side& end = self->ends_[to];
        if (!end.is_open || end.life != end.node->life()) return;
        end.node->Run(end.life, [self, to, label, deliver = std::move(deliver)] {
          if (!self->ends_[to].is_open) return;
          self->network_.world_.Log(self->ends_[to].node->name(), label,
                                    self->ends_[1 - to].node->name());
          deliver();
        });
      });
}

void SimulatedStream::End(int side, const absl::Status& status) {
  if (!ends_[side].is_open || !ends_[side].node->HaveEffect()) return;
  network_.Transmit(shared_from_this(), side, [self = shared_from_this(), to = 1 - side, status] {
    self->Break(to, status);
  });
  Close(side);
}

void SimulatedStream::Break(int side, const absl::Status& status) {
  Side& end = ends_[side];
  if (!end.is_open) return;
  if (end.life != end.node->life()) return Close(side);
  end.node->Run(end.life, [self = shared_from_this(), side, status] {
    if (!self->ends_[side].is_open) return;
    const OnEnd on_end = std::move(self->ends_[side].on_end);
    self->Close(side);
    self->network_.world_.Log(self->ends_[side].node->name(), "hears the end of a call",
                              absl::StatusCodeToString(status.code()));
    if (on_end != nullptr) on_end(status);
  });
}

void SimulatedStream::Close(int side) {
  ends_[side].is_open = false;
  ends_[side].on_end = nullptr;
  if (!ends_[1 - side].is_open) network_.streams_.erase(number_);
}

std::shared_ptr<SimulatedStream> SimulatedNetwork::Open(
    SimulatedNode& client, SimulatedNode& server,
    std::function<void(const std::shared_ptr<SimulatedStream>&)> accept) {
  auto stream = std::make_shared<SimulatedStream>(*this, ++numbers_, client, server);
  streams_[stream->number_] = stream;
  CheckLater(stream);
  if (!client.HaveEffect()) return stream;
  Transmit(stream, 0, [stream, accept = std::move(accept)] {
    SimulatedStream::Side& end = stream->ends_[1];
    if (!end.node->is_up()) {
      stream->End(1, absl::UnavailableError("connection refused"));
      return;
    }
    end.life = end.node->life();
    end.node->Run(end.life, [stream, accept] {
      if (stream->is_open(1)) accept(stream);
    });
  });
  return stream;
}

SimulatedNetwork::~SimulatedNetwork() {
  const auto streams = std::move(streams_);
  for (const auto& [number, stream] : streams) {
    for (const int side : {0, 1}) stream->ends_[side].on_end = nullptr;
  }
}

absl::Duration SimulatedNetwork::Latency() {
  absl::Duration latency = world_.Between(absl::Microseconds(50), absl::Microseconds(800)) + delay_;
  absl::Duration again = absl::Milliseconds(200);
  for (int i = 0; i < 5 && world_.Happens(loss_); ++i, again *= 2) latency += again;
  return latency;
}

void SimulatedNetwork::Carry(SimulatedNode& from, SimulatedNode& to,
                             std::function<void()> deliver) {
  world_.After(Latency(), [this, direction = Direction(from.index(), to.index()), &to,
                           life = to.life(), deliver = std::move(deliver)]() mutable {
    Arrive(direction, [&to, life, deliver = std::move(deliver)]() mutable {
      to.Run(life, std::move(deliver));
    });
  });
}

void SimulatedNetwork::Clog(int from, int to) {
  if (from == to || clogged_.contains({from, to})) return;
  clogged_[{from, to}].since = world_.now();
  for (const auto& [number, stream] : streams_) {
    const int a = stream->ends_[0].node->index();
    const int b = stream->ends_[1].node->index();
    if ((a == from && b == to) || (a == to && b == from)) CheckLater(stream);
  }
}

void SimulatedNetwork::Unclog(int from, int to) {
  const auto found = clogged_.find({from, to});
  if (found == clogged_.end()) return;
  const std::vector<std::function<void()>> held = std::move(found->second.held);
  clogged_.erase(found);
  // At once: what is on its way arrives later, and order is kept.
  for (const std::function<void()>& arrive : held) arrive();
}

void SimulatedNetwork::UnclogAll() {
  while (!clogged_.empty()) {
    const Direction direction = clogged_.begin()->first;
    Unclog(direction.first, direction.second);
  }
}

bool SimulatedNetwork::IsCut(const SimulatedStream& stream, absl::Duration since) const {
  const int a = stream.ends_[0].node->index();
  const int b = stream.ends_[1].node->index();
  for (const Direction& direction : {Direction(a, b), Direction(b, a)}) {
    const auto found = clogged_.find(direction);
    if (found != clogged_.end() && found->second.since <= since) return true;
  }
  return false;
}

void SimulatedNetwork::CheckLater(const std::shared_ptr<SimulatedStream>& stream) {
  if (!IsCut(*stream, world_.now())) return;
  world_.After(kKeepalive, [this, stream, since = world_.now()] {
    if (IsCut(*stream, since)) BreakStream(stream);
  });
}

void SimulatedNetwork::BreakStream(const std::shared_ptr<SimulatedStream>& stream) {
  for (const int side : {0, 1}) {
    if (!stream->is_open(side) || stream->node(side).is_paused()) continue;
    Transmit(stream, side, [stream, other = 1 - side] {
      stream->Break(other, absl::UnavailableError("connection reset by peer"));
    });
    stream->Break(side, Lost());
  }
}

std::vector<std::shared_ptr<SimulatedStream>> SimulatedNetwork::StreamsOf(
    const SimulatedNode& node) const {
  std::vector<std::shared_ptr<SimulatedStream>> found;
  for (const auto& [number, stream] : streams_) {
    if (&stream->node(0) == &node || &stream->node(1) == &node) found.push_back(stream);
  }
  return found;
}

void SimulatedNetwork::Reset(const SimulatedNode& node) {
  for (const std::shared_ptr<SimulatedStream>& stream : StreamsOf(node)) {
    for (const int side : {0, 1}) {
      if (&stream->node(side) != &node) continue;
      stream->End(side, absl::UnavailableError("connection reset by peer"));
    }
  }
}

void SimulatedNetwork::WatchPaused(const SimulatedNode& node) {
  world_.After(kKeepalive, [this, &node, life = node.life(), since = world_.now()] {
    if (node.life() != life || !node.is_paused() || node.paused_since() > since) return;
    for (const std::shared_ptr<SimulatedStream>& stream : StreamsOf(node)) BreakStream(stream);
  });
}

}  // namespace crossmesh
