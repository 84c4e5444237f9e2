#pragma once

#include "common/base/log.h"
#include "common/base/mutex.h"
#include "worker/transport/socket/testing/raw_peer.h"
#include "worker/transport/testing/transport_node.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/time/time.h>
#include <gtest/gtest.h>

namespace crossmesh {

// A SocketTransport that uses shared memory, and peers that a test makes lie to it.
class LyingPeerTest : public testing::Test {
 protected:
  static constexpr uint64_t kLarge = 100000;

  LyingPeerTest() { StartNode(absl::Minutes(1)); }
  void StartNode(absl::Duration handshake_limit,
                 TransportNode::Arrival arrival = TransportNode::Arrival::kPark);

  RawPeer Connect(bool shared_memory = false, uint64_t number = 1);
  // Of a message; with pieces they lie in a region.
  struct Announcement {
    uint64_t id = 0;
    uint64_t bytes = 0;
    uint32_t pieces = 0;
    uint64_t region = 0;
  };
  static void Announce(RawPeer& peer, const Announcement& announced);
  // Announcements of large messages, as bytes.
  static std::string Flood(uint64_t messages);

  bool WaitAnnounced(size_t count);
  bool WaitReceived(size_t count);

  // The transport closes the connection, and says why.
  void ExpectClosed(RawPeer& peer, const std::string& why);
  // A node connects to a peer, announces two messages, and is told these answers.
  void ExpectAnswersRefused(const std::vector<FrameHeader>& answers, const std::string& why);

  void TearDown() override;

  std::unique_ptr<TransportNode> node_;

 private:
  void OnLog(const LogRecord& record);

  Mutex mutex_;
  std::string problems_ ABSL_GUARDED_BY(mutex_);
  const ScopedLogSink log_{[this](const LogRecord& record) { OnLog(record); }};
};

}  // namespace crossmesh
