#pragma once

#include "common/metrics/worker_metrics.h"
#include "worker/executor/laid_out_part.h"
#include "worker/executor/task.h"

namespace crossmesh {

// Records the phases and the relays of a task that has ended. The relays of a task run side by side
// and share its time: each is given the part that its bytes are of all. `link` is that to other
// workers.
void RecordTaskEnd(const LaidOutPart& part, const TaskReport& report, TransportLink link,
                   WorkerMetrics& metrics);

}  // namespace crossmesh
