#pragma once

#include "worker/transport/transport.h"

#include <cstddef>

namespace crossmesh {

// Memory for the messages of a transport, all of one size: what one gives back the next one takes,
// so nothing is allocated once there were as many at once as there ever are, up to a bound. Must
// outlive the messages. Confined to the loop.
class MessagePool {
 public:
  static constexpr int kSpareMax = 1024;  // more are not kept: a flood may have brought them

  MessagePool() = default;
  ~MessagePool();
  MessagePool(const MessagePool&) = delete;
  MessagePool& operator=(const MessagePool&) = delete;

  int spares() const { return spares_; }

 private:
  friend class PooledMessage;
  // Stands before each message.
  struct alignas(std::max_align_t) Block {
    MessagePool* pool = nullptr;
    Block* next = nullptr;  // of those that are spare
  };

  void* Take(size_t bytes);
  static void Give(void* message);

  size_t bytes_ = 0;  // of a message
  Block* spare_ = nullptr;
  int spares_ = 0;
};

// A message in memory of a pool: made by `new (pool) Message(...)`, deleted as any other.
class PooledMessage : public IncomingMessage {
 public:
  static void* operator new(size_t bytes, MessagePool& pool) { return pool.Take(bytes); }
  static void operator delete(void* message) { MessagePool::Give(message); }
  // What a constructor that throws would call; none does.
  static void operator delete(void* message, MessagePool& /*pool*/) { MessagePool::Give(message); }
};

}  // namespace crossmesh
