#pragma once

#include "worker/executor/executor_counters.h"
#include "worker/executor/executor_options.h"
#include "worker/executor/host_task_runner.h"
#include "worker/transport/transport.h"

#include <memory>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class EventLoop;
class ReplayRunner;

// Runs parts of devices of host memory as data-flow graphs over one transport: between chunks only
// data edges, channel order and the plan's periods bind. A receiver forwards chunk k as soon as it
// has it. A chunk that is in few pieces of memory, as many as the transport takes, moves from and
// to the tensors themselves, any other through staging. Receiving never waits for forwarding, so
// staging cannot deadlock.
//
// Failure is per destination device: a lost, stalled or lying peer fails the devices that it was to
// serve and, by a message down the route, those downstream of them; other devices go on. Buffers
// are given back only when nothing can write to them any more: a cancelled task waits for the
// transfers under way, and disconnects a peer that does not end them within the stall limit.
//
// Confined to the loop, apart from construction; destroyed after the loop has stopped and before
// its transport, whose messages it may hold. Allocates nothing per chunk.
class Executor : public HostTaskRunner, public TransportSink {
 public:
  // `loop` must outlive the executor. A transport is made with its sink, so the executor is made
  // first.
  static std::unique_ptr<Executor> Create(EventLoop& loop, ExecutorOptions options);
  // Once, before the loop starts and before the first task. Lends the transport the memory in which
  // chunks are gathered; `transport` must live until the loop has stopped. ResourceExhausted: no
  // memory for staging.
  virtual absl::Status Attach(Transport& transport) = 0;

  // As TaskRunner says; InvalidArgument also when a device's worker is not given, a peer address is
  // bad, or a chunk is larger than the staging for it.
  absl::Status Start(TaskSpec spec, TaskObserver& observer) override = 0;
  // As TaskRunner says. The connection stays, and other tasks with it, unless transfers of the task
  // are still open when nothing else is left to do.
  void PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) override = 0;
  virtual const ExecutorCounters& counters() const = 0;
  // Not before Attach.
  virtual ReplayRunner& replays() = 0;
};

}  // namespace crossmesh
