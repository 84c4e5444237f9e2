// CHECK(condition) << "what was found": prints to standard error and aborts when the condition is
// false.
//
// Only for what a bug of ours can cause, never for bytes from disk, network or user: those get an
// absl::Status.

#pragma once

#include <ostream>
#include <sstream>

#include <absl/base/attributes.h>
#include <absl/base/optimization.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh::internal {

// Collects the message of a failed check and aborts at the end of the full expression.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();

  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;

  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

// Gives both branches of the conditional in CHECK the type void; `&` binds weaker than `<<`.
struct Voidify {
  void operator&(const std::ostream&) const {}
};

template <typename T>
concept Printable = requires(std::ostream& out, const T& value) { out << value; };

template <typename T>
void PrintOperand(std::ostream& out, const T& value) {
  if constexpr (Printable<T>) {
    out << value;
  } else {
    out << "?";
  }
}

template <typename Left, typename Right>
ABSL_ATTRIBUTE_COLD std::ostream& PrintOperands(std::ostream& out, const Left& left,
                                                const Right& right) {
  out << "(";
  PrintOperand(out, left);
  out << " vs. ";
  PrintOperand(out, right);
  return out << ") ";
}

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }

template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

}  // namespace crossmesh::internal

#define CHECK(condition)               \
  ABSL_PREDICT_TRUE(condition)         \
  ? static_cast<void>(0)               \
  : ::crossmesh::internal::Voidify() & \
          ::crossmesh::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()

// Compares two values and prints both on failure. The operands are evaluated once more, to be
// printed, when the check fails; they must have no side effects.
#define CHECK_EQ(left, right) CROSSMESH_CHECK_OP_(==, left, right)
#define CHECK_NE(left, right) CROSSMESH_CHECK_OP_(!=, left, right)
#define CHECK_LT(left, right) CROSSMESH_CHECK_OP_(<, left, right)
#define CHECK_LE(left, right) CROSSMESH_CHECK_OP_(<=, left, right)
#define CHECK_GT(left, right) CROSSMESH_CHECK_OP_(>, left, right)
#define CHECK_GE(left, right) CROSSMESH_CHECK_OP_(>=, left, right)

#define CROSSMESH_CHECK_OP_(op, left, right)                                                    \
  ABSL_PREDICT_TRUE((left)op(right))                                                            \
  ? static_cast<void>(0)                                                                        \
  : ::crossmesh::internal::Voidify() &                                                          \
          ::crossmesh::internal::PrintOperands(                                                 \
              ::crossmesh::internal::CheckFailure(__FILE__, __LINE__, #left " " #op " " #right) \
                  .stream(),                                                                    \
              left, right)

// Checks that a Status or StatusOr is OK; its operand is evaluated once.
#define CHECK_OK(expression)                                                               \
  if (const absl::Status checked_status = ::crossmesh::internal::StatusOf(expression);     \
      ABSL_PREDICT_TRUE(checked_status.ok())) {                                            \
  } else /* NOLINT(readability-misleading-indentation) */                                  \
    ::crossmesh::internal::CheckFailure(__FILE__, __LINE__, #expression " is OK").stream() \
        << "(" << checked_status.ToString() << ") "
