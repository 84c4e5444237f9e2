#pragma once

#include "common/communicators/communicator_key.h"

#include <cstdint>
#include <map>
#include <string>

namespace crossmesh {

// What a rank says of itself before a communicator is made: all that would make NCCL fail, or wait
// without end, where the ranks do not fit together.
struct PreflightReport {
  RankName rank;
  int nccl_version = 0;      // 23007 is 2.30.7
  std::string nccl_library;  // for people: "NCCL 2.30.7, /usr/lib/libnccl.so.2"
  int driver_version = 0;    // 13000 is CUDA 13.0
  // The variables that begin with NCCL_ or CUDA_.
  std::map<std::string, std::string> environment;
  int64_t free_bytes = 0;  // memory of the GPU
  // What the process's communicators take of it, by the tickets that they were made with.
  std::map<uint64_t, int64_t> communicators;
  bool m2n = false;  // whether the process can use NCCL M2N

  friend bool operator==(const PreflightReport&, const PreflightReport&) = default;
};

}  // namespace crossmesh
