#pragma once

#include "worker/transport/transport.h"

#include <chrono>
#include <cstdint>

namespace crossmesh {

// What is under way to one peer, of all channels that lead there. Confined to the loop.
class SendWindow {
 public:
  explicit SendWindow(PeerId peer) : peer_(peer) {}

  PeerId peer() const { return peer_; }
  // As if nothing had been sent. Not while something is under way.
  void Rewind() {
    sent_bytes_ = 0;
    busy_ = {};
  }

  // A channel has sent a message; the peer has taken one. Bytes are those of chunks.
  void OnSend(int64_t bytes) {
    if (open_++ == 0) open_since_ = Clock::now();
    open_bytes_ += bytes;
    sent_bytes_ += bytes;
  }
  void OnTaken(int64_t bytes) {
    if (--open_ == 0) busy_ += Clock::now() - open_since_;
    open_bytes_ -= bytes;
  }

  // Messages that the peer has not taken, and their bytes.
  int32_t open() const { return open_; }
  int64_t open_bytes() const { return open_bytes_; }
  int64_t sent_bytes() const { return sent_bytes_; }
  // So long was something under way.
  std::chrono::steady_clock::duration busy() const { return busy_; }

 private:
  using Clock = std::chrono::steady_clock;

  const PeerId peer_;
  int32_t open_ = 0;
  int64_t open_bytes_ = 0;
  int64_t sent_bytes_ = 0;
  Clock::duration busy_{};
  Clock::time_point open_since_;  // when something is under way
};

}  // namespace crossmesh
