#pragma once

#include <memory>

#include <grpcpp/impl/service_type.h>

namespace crossmesh {

class EventLoop;
class ProgramHost;
class TaskTable;

// The services whose calls are streams of a controller: each brings its calls' messages to the
// control loop, in order. Thread-safe; what they work on outlives the server.

// Serves Execute. `table` is confined to `control`.
std::unique_ptr<grpc::Service> MakeExecutionService(EventLoop& control, TaskTable& table);
// Serves RunProgram.
std::unique_ptr<grpc::Service> MakePipelineExecutionService(ProgramHost& host);

}  // namespace crossmesh
