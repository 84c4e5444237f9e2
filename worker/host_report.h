#pragma once

#include "common/host_devices/host_devices.h"
#include "crossmesh/v1/worker_service.pb.h"

#include <optional>

#include <google/protobuf/repeated_ptr_field.h>

namespace crossmesh {

// The part of a network's description that the system shows of a worker's host: its NICs, and these
// GPUs by their devices. Nothing where they are of several hosts, one is there twice, as shares
// are, or DescribeHost does not know one of them.
std::optional<v1::Host> ReportHost(const SystemDevices& system,
                                   const google::protobuf::RepeatedPtrField<v1::Gpu>& gpus);

}  // namespace crossmesh
