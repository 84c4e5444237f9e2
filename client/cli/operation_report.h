#pragma once

#include "crossmesh/v1/operation_service.pb.h"

#include <span>
#include <string>

namespace crossmesh {

// An operation for people: state, replicas and, when it has ended, its report.
std::string OperationText(const v1::Operation& operation);

// One row per operation.
std::string OperationTable(std::span<const v1::Operation> operations);

}  // namespace crossmesh
