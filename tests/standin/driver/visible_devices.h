// Which devices a process has, by the environment.

#pragma once

#include <vector>

#include <cuda.h>

namespace crossmesh {

// Of an environment variable, if it has one from 0 on.
int NumberFromEnvironment(const char* name, int otherwise);

// Of the device with this number, on this host and in all its processes.
CUuuid UuidOfNumber(int number);

// The numbers of the devices that this process sees, in its order: CROSSMESH_STANDIN_DEVICES of
// them from CROSSMESH_STANDIN_FIRST_DEVICE on. With CUDA_VISIBLE_DEVICES, a list of indices and of
// UUIDs or beginnings of them, those that it names before the first that is not there. Where
// CROSSMESH_STANDIN_MIG is set devices are instances of GPUs: a process sees one of them, that
// which the variable names first by its UUID, or the first of all.
std::vector<int> VisibleDevices();

}  // namespace crossmesh
