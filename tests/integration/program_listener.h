#pragma once

#include "common/base/mutex.h"
#include "crossmesh/v1/pipeline_execution_service.pb.h"
#include "worker/pipeline/running_program.h"

#include <deque>
#include <utility>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// Hears of one program, for the thread of the test.
class ProgramListener final : public ProgramObserver {
 public:
  using Report = v1::RunProgramResponse::IterationReport;

  void OnReady(const absl::Status& status) override {
    MutexLock lock(mutex_);
    // With a text of its own: copies share one, counted inside a library that ThreadSanitizer does
    // not see into.
    ready_.emplace_back(status.code(), status.message());
    changed_.Signal();
  }
  void OnReport(const Report& report) override {
    MutexLock lock(mutex_);
    reports_.push_back(report);
    changed_.Signal();
  }
  void OnStopped() override {
    MutexLock lock(mutex_);
    stopped_ = true;
    changed_.Signal();
  }
  // DeadlineExceeded when nothing comes for a long time.
  absl::Status NextReady() {
    MutexLock lock(mutex_);
    while (ready_.empty()) {
      if (changed_.WaitFor(mutex_, absl::Seconds(30))) {
        return absl::DeadlineExceededError("the program is not ready");
      }
    }
    const absl::Status status = ready_.front();
    ready_.pop_front();
    return status;
  }
  // What came before.
  bool IsReady() {
    MutexLock lock(mutex_);
    return !ready_.empty();
  }
  // One of no iteration when none comes for a long time.
  Report NextReport() {
    MutexLock lock(mutex_);
    while (reports_.empty()) {
      if (changed_.WaitFor(mutex_, absl::Seconds(30))) return NoReport();
    }
    Report report = std::move(reports_.front());
    reports_.pop_front();
    return report;
  }
  static Report NoReport() {
    Report report;
    report.set_iteration(-1);
    report.set_code(static_cast<int>(absl::StatusCode::kDeadlineExceeded));
    return report;
  }
  void WaitUntilStopped() {
    MutexLock lock(mutex_);
    while (!stopped_) changed_.Wait(mutex_);
    stopped_ = false;  // the next program's
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<absl::Status> ready_ ABSL_GUARDED_BY(mutex_);
  std::deque<Report> reports_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace crossmesh
