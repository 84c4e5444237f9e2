#pragma once

#include "tests/fuzz/corpus_writer.h"

namespace crossmesh {

// An object inline, one in a chunk, and a deletion.
void WriteEtcdWatches(const CorpusWriter& corpus);

}  // namespace crossmesh
