#pragma once

#include "crossmesh/v1/pipeline_service.pb.h"
#include "tests/simulation/simulated_history.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace crossmesh {

// Runs of pipelines as clients and the processes that compute see them, and what must never be.
class SimulatedRunHistory {
 public:
  explicit SimulatedRunHistory(SimulatedHistory& history) : history_(history) {}

  // A process that computes a rank of a run, in one start of its program. Runs are named by what
  // clients have asked for.
  struct Computer {
    std::string run;
    std::string worker;
    int64_t life = 0;         // of the worker's process
    int64_t program = 0;      // as NewProgram
    bool knows_loss = false;  // its process was told that state is lost
  };
  // It begins an op of an iteration.
  void OnOp(const Computer& computer, int64_t iteration);
  // It has done one, of so many that each worker has in an iteration.
  void OnOpDone(const Computer& computer, int64_t iteration, int64_t ops);
  // It is told that an iteration is complete everywhere.
  void OnComplete(const Computer& computer, int64_t iteration);
  // An input of an op has not what its sender has put there.
  void OnWrongInput(const Computer& computer, int64_t iteration);

  void OnRequest(const std::string& run) { runs_[run]; }
  // A controller has told a client of the run.
  void OnTold(const std::string& run, const v1::PipelineRun& told);

  // When all that was asked for should have ended.
  void CheckAllEnded();

  // A number for another start of a program at a worker.
  int64_t NewProgram() { return ++programs_; }

  int64_t complete() const { return complete_; }  // iterations, as clients were told

 private:
  struct Part {  // of an iteration, at a worker
    int64_t program = 0;
    int64_t ops_left = -1;  // negative: none is done
  };
  struct Run {
    std::string id;
    std::optional<v1::PipelineRunState> end;
    std::map<int64_t, std::map<std::string, Part>> iterations;
    std::map<std::string, int64_t> lives;          // by worker, when it computed last
    std::map<std::string, int64_t> told_complete;  // by worker, the last one
    std::set<int64_t> complete;                    // of which anybody was told
    std::set<int64_t> failed;                      // of which clients were told
  };

  // Of which somebody was told that it is complete.
  void CheckComplete(const std::string& run, int64_t iteration);
  void Violated(const std::string& run, int64_t iteration, const std::string& what);

  SimulatedHistory& history_;
  std::map<std::string, Run> runs_;
  int64_t complete_ = 0;
  int64_t programs_ = 0;
};

}  // namespace crossmesh
