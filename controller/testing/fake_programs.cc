#include "controller/testing/fake_programs.h"

#include "common/base/check.h"
#include "common/rpc/server_streams.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

// One RunProgram call.
class FakePrograms::Call final
    : public ServerBidiStream<v1::RunProgramRequest, v1::RunProgramResponse> {
 public:
  explicit Call(FakePrograms& programs) : programs_(programs) {}

 private:
  void OnMessage(v1::RunProgramRequest request) override {
    switch (request.message_case()) {
      case v1::RunProgramRequest::kStart: {
        const MutexLock lock(programs_.mutex_);
        programs_.last_start_ = request.start();
        return;
      }
      case v1::RunProgramRequest::kPiece:
        return OnPiece(request.piece());
      case v1::RunProgramRequest::kBeginIteration:
        return OnBegin(request.begin_iteration().iteration());
      case v1::RunProgramRequest::kStop:
        return OnStop(request.stop().reason());
      case v1::RunProgramRequest::MESSAGE_NOT_SET:
        return;
    }
  }

  void OnPiece(const v1::Piece& piece) {
    CHECK_LE(piece.data().size(), size_t{512} << 10);
    bytes_ += piece.data();
    if (!piece.last()) return;
    CHECK(program_.ParseFromString(bytes_));
    if (manner() == Manner::kRefusing) {
      return End(absl::ResourceExhaustedError("no memory for the buffers of 0>1"));
    }
    {
      const MutexLock lock(programs_.mutex_);
      ++programs_.counts_.programs;
      programs_.last_program_ = program_;
    }
    v1::RunProgramResponse response;
    response.mutable_accepted();
    Send(std::move(response));
  }

  void OnBegin(int64_t iteration) {
    iteration_ = iteration;
    {
      const MutexLock lock(programs_.mutex_);
      ++programs_.counts_.iterations;
      programs_.begun_.push_back(iteration);
      programs_.changed_.SignalAll();
    }
    v1::RunProgramResponse response;
    auto& report = *response.mutable_iteration_report();
    report.set_iteration(iteration);
    if (manner() == Manner::kHolding || programs_.Holds(iteration)) return;
    if (manner() == Manner::kFailing) {
      report.set_code(static_cast<int32_t>(absl::StatusCode::kDataLoss));
      report.set_message("1F0: microbatch 0 of 0>1: bytes differ");
    }
    for (const auto& rank : program_.ranks()) {
      auto& ops = *report.add_ops();
      ops.set_rank(rank.rank());
      const auto count = 1 + std::ranges::count(rank.actions(), ' ');
      for (int64_t op = 0; op < count; ++op) {
        ops.add_begin_ns(kBegin + op * 1'000'000);
        ops.add_end_ns(kBegin + (op + 1) * 1'000'000);
      }
    }
    Send(std::move(response));
  }

  void OnStop(const std::string& reason) {
    {
      const MutexLock lock(programs_.mutex_);
      ++(reason.empty() ? programs_.counts_.ends : programs_.counts_.stops);
    }
    if (!reason.empty()) {
      v1::RunProgramResponse response;
      auto& report = *response.mutable_iteration_report();
      report.set_iteration(iteration_);
      report.set_code(static_cast<int32_t>(absl::StatusCode::kCancelled));
      report.set_message(reason);
      for (const auto& rank : program_.ranks()) {
        report.add_positions(absl::StrCat("rank ", rank.rank(), ": waits"));
      }
      Send(std::move(response));
    }
    End(absl::OkStatus());
  }

  Manner manner() const {
    const MutexLock lock(programs_.mutex_);
    return programs_.manner_;
  }

  void OnMessagesEnd() override { End(absl::OkStatus()); }
  void OnEnd() override {}

  static constexpr int64_t kBegin = 1'700'000'000'000'000'000;

  FakePrograms& programs_;
  std::string bytes_;
  v1::PipelineProgram program_;
  int64_t iteration_ = 0;
};

void FakePrograms::SetManner(Manner manner) {
  const MutexLock lock(mutex_);
  manner_ = manner;
}

void FakePrograms::HoldFrom(int64_t iteration) {
  const MutexLock lock(mutex_);
  hold_from_ = iteration;
}

bool FakePrograms::Holds(int64_t iteration) const {
  const MutexLock lock(mutex_);
  return iteration >= hold_from_;
}

std::vector<int64_t> FakePrograms::begun() const {
  const MutexLock lock(mutex_);
  return begun_;
}

FakePrograms::Counts FakePrograms::counts() const {
  const MutexLock lock(mutex_);
  return counts_;
}

v1::RunProgramRequest::Start FakePrograms::last_start() const {
  const MutexLock lock(mutex_);
  return last_start_;
}

v1::PipelineProgram FakePrograms::last_program() const {
  const MutexLock lock(mutex_);
  return last_program_;
}

void FakePrograms::WaitForIterations(int iterations) {
  const MutexLock lock(mutex_);
  while (counts_.iterations < iterations) changed_.Wait(mutex_);
}

grpc::ServerBidiReactor<v1::RunProgramRequest, v1::RunProgramResponse>* FakePrograms::RunProgram(
    grpc::CallbackServerContext* /*context*/) {
  return Call::Serve(std::make_shared<Call>(*this));
}

}  // namespace crossmesh
