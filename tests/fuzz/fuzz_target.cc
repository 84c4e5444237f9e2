#include "tests/fuzz/fuzz_input.h"

// The name by which libFuzzer and replay_corpus.cc know a target.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  crossmesh::FuzzOne(data, size);
  return 0;
}
