"""Does limits_test.py find what it should? Each rule with a case that breaks it and one that does not."""

import unittest

import cpp_functions
import limits_test
import source_tree
from cpp_functions import Function


def names(text: str) -> list[str]:
    return sorted(function.name for function in cpp_functions.functions(text))


def only(text: str) -> Function:
    found = cpp_functions.functions(text)
    assert len(found) == 1, found
    return found[0]


class FindingTest(unittest.TestCase):
    def test_functions_and_methods_defined_and_declared(self):
        text = """
            namespace crossmesh {
            int Declared(int a);
            class Table final : public Base<int> {
             public:
              explicit Table(Arena& arena) : arena_(arena), places_{1, 2} { Fill(); }
              ~Table();
              int size() const { return size_; }
              bool operator==(const Table&) const = default;
              void operator()(int step) override;

             private:
              int size_ ABSL_GUARDED_BY(mutex_) = 0;
              std::function<void(int, int)> done_;
              std::array<int, 3> places_{};
            };
            std::vector<int> Table::Row(int index) const { return {index}; }
            }  // namespace crossmesh
        """
        self.assertEqual(names(text), ["Declared", "Table", "Table::Row", "operator()", "operator==", "size", "~Table"])

    def test_what_is_no_function(self):
        text = """
            #define SUM(a, b, c, d, e) (a + b)
            // int Commented(int a, int b) { return a; }
            constexpr int kSquares[] = {Square(1), Square(2)};
            const auto kText = R"(int Quoted(int a) { return a; })";
            const Case kCase = {.name = "f(a, b) {", .rank = At(1)};
            enum class Kind { kOne, kTwo };
            using Done = void (*)(int status);
            static_assert(sizeof(Kind) == 4);
            INSTANTIATE_TEST_SUITE_P(All, Suite, Values(1, 2), Name());
        """
        self.assertEqual(names(text), [])

    def test_lambdas_are_functions_of_their_own(self):
        found = cpp_functions.functions("""
            void Run() {
              Post([this, done = Done()](int a, int b) mutable -> Status {
                if (a) {
                  Go();
                }
              });
              table[index] = row[0];
            }
        """)
        self.assertEqual([(function.name, function.parameters, function.lines, function.nesting) for function in found],
                         [("Run", 0, 6, 0), ("lambda", 2, 3, 1)])


class CountingTest(unittest.TestCase):
    def test_parameters(self):
        self.assertEqual(only("void F() {}").parameters, 0)
        self.assertEqual(only("void F(void);").parameters, 0)
        self.assertEqual(only("void F(std::map<int, int> a, absl::FunctionRef<int(int, int)> b);").parameters, 2)
        self.assertEqual(only("C::C(int a, int b, int c) : a_(a), b_(b, c) {}").parameters, 3)
        self.assertEqual(only("template <typename... A>\nvoid F(int a, const A&... rest);").parameters, 1)
        self.assertEqual(only("template <typename A, typename B>\nA F(B b, int c = G(1, 2)) { return b; }").parameters, 2)

    def test_lines_of_the_body(self):
        self.assertEqual(only("int F() { return 1; }").lines, 0)
        self.assertEqual(only("int F(int a,\n      int b) {\n  // Why.\n\n  return a;\n}").lines, 3)
        self.assertIsNone(only("int F();").lines)

    def nesting(self, body: str) -> int:
        return only("void F() {" + body + "}").nesting

    def test_nesting(self):
        self.assertEqual(self.nesting("Go();"), 0)
        self.assertEqual(self.nesting("for (int i : all) { if (i) { Go(); } }"), 2)
        self.assertEqual(self.nesting("if (a) { Go(); } if (b) { Go(); }"), 1)
        self.assertEqual(self.nesting("do { while (a) { switch (b) { case 1: { Go(); } } } } while (c);"), 3)

    def test_a_chain_of_else_is_one_level(self):
        self.assertEqual(self.nesting("if (a) { Go(); } else if (b) { Go(); } else { for (;;) { Go(); } }"), 2)

    def test_a_guard_on_one_line_is_no_level(self):
        self.assertEqual(self.nesting("for (int i : all) { if (i) continue; }"), 1)
        self.assertEqual(self.nesting("for (int i : all) if (i) { Go(); }"), 2)


class LimitTest(unittest.TestCase):
    def problems(self, text: str, path: str = "worker/memory/arena.cc") -> list[str]:
        return [*limits_test.size_problems(path, text), *limits_test.function_problems(path, text)]

    def test_long_files(self):
        self.assertEqual(self.problems("\n" * 400), [])
        self.assertEqual(len(self.problems("\n" * 401)), 1)
        self.assertEqual(len(self.problems("\n" * 401, "worker/memory/arena_test.cc")), 1)
        self.assertEqual(len(self.problems("\n" * 251, "worker/memory/arena.h")), 1)

    def test_long_functions(self):
        self.assertEqual(self.problems("void F() {" + "\n" * 61 + "}"), [])
        self.assertEqual(len(self.problems("void F() {" + "\n" * 62 + "}")), 1)

    def test_deep_functions(self):
        self.assertEqual(self.problems("void F() {" + "if (a) {" * 3 + "}" * 4), [])
        self.assertEqual(len(self.problems("void F() {" + "if (a) {" * 4 + "}" * 5)), 1)

    def test_many_parameters(self):
        self.assertEqual(self.problems("void F(int a, int b, int c, int d);"), [])
        self.assertEqual(len(self.problems("void F(int a, int b, int c, int d, int e);")), 1)
        self.assertEqual(self.problems("void F(int a, int b, int c, int d, int e);", "worker/testing/arena.cc"), [])
        self.assertEqual(self.problems("int T::OnActiveMessage(int a, int b, int c, int d, int e) {}"), [])


class HeadersTest(unittest.TestCase):
    @staticmethod
    def graph(count: int, path: str) -> source_tree.IncludeGraph:
        """A source that includes the first of `count` headers, each of which includes the next, and the last the first."""
        headers = {f"worker/h{i}.h": [f"worker/h{(i + 1) % count}.h"] for i in range(count)}
        return source_tree.IncludeGraph({path: ["worker/h0.h"]} | headers)

    def test_headers_are_counted_however_deep(self):
        self.assertEqual(list(limits_test.header_problems(self.graph(60, "worker/worker.cc"))), [])
        self.assertEqual(len(list(limits_test.header_problems(self.graph(61, "worker/worker.cc")))), 1)
        self.assertEqual(limits_test.most_headers(self.graph(61, "worker/worker.cc")),
                         "Most headers: 61, worker/worker.cc")

    def test_tests_may_read_more(self):
        for path in ("worker/worker_test.cc", "worker/testing/pair.cc", "tests/live/cluster.cc"):
            self.assertEqual(list(limits_test.header_problems(self.graph(61, path))), [], path)


if __name__ == "__main__":
    unittest.main()
