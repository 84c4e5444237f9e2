// What a function needs to be compiled for both the GPU, by nvcc, and the host, by any compiler.

#pragma once

// Before each such function. kernels.cu defines it for the GPU.
#ifndef CROSSMESH_DEVICE
#define CROSSMESH_DEVICE
#endif
