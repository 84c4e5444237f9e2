#pragma once

#include "controller/dispatch/operation_snapshot.h"
#include "crossmesh/v1/operation_service.pb.h"
#include "crossmesh/v1/reshard.pb.h"

namespace crossmesh {

v1::OperationState ToProto(OperationState state);

// Without the request's id and specification, which the snapshot does not have.
v1::Operation ToProto(const OperationSnapshot& snapshot);

// What an operation shows of its specification: without an inline manifest's tensors, since it is
// sent with every change.
v1::ReshardSpec SpecToShow(const v1::ReshardSpec& spec);

}  // namespace crossmesh
