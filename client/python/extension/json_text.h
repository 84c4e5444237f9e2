#pragma once

#include <string>

#include <google/protobuf/message.h>

namespace crossmesh {

// A message of the API as JSON, with every field, and integers as numbers whatever their size.
std::string JsonTextOf(const google::protobuf::Message& message);

}  // namespace crossmesh
