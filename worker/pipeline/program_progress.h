#pragma once

#include "worker/pipeline/worker_program.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace crossmesh {

// What is to be done next in an iteration of a worker's program. Knows neither time nor bytes: it
// is told what has happened, and says what is to be done. After the first iteration it allocates
// nothing.
//
// A message is opened when its memory is free: what was there before has left, and the op that
// needed it is done. A rank's op begins when the one before it is done, its inputs have arrived and
// its outputs have room; when it is done they are filled. Two fused ops are as one, with the inputs
// and the outputs of both. Where transfers block, a rank fills, or opens, a message only at its
// place among the actions, and goes on when that has left or arrived.
class ProgramProgress {
 public:
  struct Work {
    enum class Kind : uint8_t {
      kOpen,  // `message` may be written and read from now on
      kFill,  // its source is here
      kRun,   // `rank` begins its `op`, and that which is fused with it
    };
    Kind kind = Kind::kOpen;
    TransferMessage message;
    int32_t rank = 0;  // index into WorkerProgram::ranks
    int32_t op = 0;    // index into the rank's ops

    friend bool operator==(const Work&, const Work&) = default;
  };

  // `program` must outlive it.
  explicit ProgramProgress(const WorkerProgram& program);

  // Each returns what is to be done now, in this order, valid until the next call.
  const std::vector<Work>& Begin();  // an iteration, from nothing
  const std::vector<Work>& OnOpDone(int32_t rank);
  // It is in place at all devices of this worker that get it.
  const std::vector<Work>& OnArrived(const TransferMessage& message);
  // Nothing of it moves any more.
  const std::vector<Work>& OnLeft(const TransferMessage& message);

  bool complete() const { return left_ == messages_ && ranks_done_ == std::ssize(ranks_); }
  // "rank 1: 1F3 waits for microbatch 3 of 0>1". A rank that waits for nothing says what it has
  // given and has not left: "rank 0: computes b, moving sum after a".
  std::string PositionOf(int32_t rank) const;

 private:
  static constexpr size_t kMovingTold = 4;

  struct Message {
    bool wanted = false;  // its place among the actions is reached
    bool filled = false;
    bool arrived = false;
    bool left = false;
    bool used = false;  // by the op that needs it
  };
  struct Transfer {
    std::vector<Message> messages;
    int32_t opened = 0;
  };
  struct Rank {
    size_t next = 0;  // among the actions
    bool running = false;
  };

  Message& At(const TransferMessage& message) {
    return transfers_[message.transfer].messages[message.index];
  }
  const Message& At(const TransferMessage& message) const {
    return transfers_[message.transfer].messages[message.index];
  }
  bool IsOpen(const TransferMessage& message) const {
    return message.index < transfers_[message.transfer].opened;
  }
  // Has what lay in its memory gone?
  bool HasRoom(const TransferMessage& message) const;
  bool MayOpen(const TransferMessage& next) const;
  bool MayRun(std::span<const WorkerProgram::RankOp> step) const;
  void Fill(const TransferMessage& message);
  void GoOn();
  bool GoOn(int32_t rank);
  std::string MovingText(const WorkerProgram::Rank& rank) const;

  const WorkerProgram& program_;
  std::vector<Transfer> transfers_;
  std::vector<Rank> ranks_;
  std::vector<Work> work_;
  int64_t messages_ = 0;
  int64_t left_ = 0;
  int64_t ranks_done_ = 0;
};

}  // namespace crossmesh
