"""Does the mutation tool plant what it should, and see what becomes of it? No suite of the product is run."""

import contextlib
import io
import json
import pathlib
import re
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True

import bindings  # noqa: E402
import equivalent  # noqa: E402
import modules  # noqa: E402
import parsing  # noqa: E402
import report  # noqa: E402
import suites  # noqa: E402
import trial  # noqa: E402
from failure import Failure  # noqa: E402
from modules import Module  # noqa: E402
from mutants import Edit, Mutant, Source  # noqa: E402
from planting import Outcome, Planting, Result  # noqa: E402

SKIPPED = 77

PRELUDE = """
namespace absl { struct Status { bool ok() const; }; Status OkStatus(); Status InternalError(const char*); }
struct Failure { template <typename T> Failure& operator<<(const T&); };
struct Name { int id; bool operator==(const Name&) const = default; };
struct Interval { long begin, end; };
void LogInfo(const char*, int);
int StrCat(const char*, int, int);
void Put(int*, int, int);
absl::Status Check(int);
#define RETURN_IF_ERROR(expression) \\
  do { if (absl::Status s = (expression); !s.ok()) { return s; } } while (false)
#define CHECK(condition) if (!(condition)) Failure()
"""


def found_in(function: str) -> list[str]:
    """What the tool finds in a function after PRELUDE, each as `operator: diff`."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "a.cc").write_text(PRELUDE + function)
        found = parsing.parse(parsing.Parsed(pathlib.Path(folder), "a.cc", ("-std=c++20",)))
    return [f"{mutant.operator}: {mutant.diff}" for mutant in found]


def has_bindings() -> bool:
    try:
        bindings.clang()
    except bindings.Missing as error:
        print(f"skipped: {error}")
        return False
    return True


@unittest.skipUnless(has_bindings(), "no bindings")
class OperatorsTest(unittest.TestCase):
    def expect(self, function: str, *expected: str) -> None:
        self.assertEqual(found_in(function), list(expected))

    def test_comparisons_and_bounds(self):
        self.expect("bool F(int a, int b) { return a < b; }",
                    "comparison: bool F(int a, int b) { return a <{+=+} b; }",
                    "minus_one: bool F(int a, int b) { return a < b{+ - 1+}; }")
        self.expect("bool F(int a, int b) {\n  return a >\n      b + a;\n}",
                    "comparison: return a >{+=+}",
                    "plus_one: {+(+}b + a{+) + 1+};")
        self.expect("bool F(double a, double b) {\nreturn a >= b;\n}", "comparison: return a [->=-]{+>+} b;")

    def test_comparisons_that_the_compiler_rewrites(self):
        self.expect("bool F(Name a, Name b) {\n  return a == b;\n}", "comparison: return a [-==-]{+!=+} b;")
        self.expect("bool F(Name a, Name b) {\n  return a != b;\n}", "comparison: return a [-!=-]{+==+} b;")

    def test_templates(self):
        self.expect("template <typename T>\nbool F(T a, T b) {\n  return a <= b;\n}",
                    "comparison: return a [-<=-]{+<+} b;")

    def test_conditions(self):
        self.expect("void F(bool a) {\n  while (a) {\n  }\n}", "negated: while ({+!(+}a{+)+}) {")
        self.expect("int F(bool a, int b) {\n  return !a ? b : -b;\n}", "negated: return {+!(+}!a{+)+} ? b : -b;")
        self.expect("int F(int a) {\n  if (a == a) {\n  } else {\n    return a;\n  }\n  return -a;\n}",
                    "comparison: if (a [-==-]{+!=+} a) {")

    def test_checks(self):
        self.expect("int F(bool a, int b) {\n  if (a) return b;\n  return -b;\n}",
                    "unchecked: if ({+(+}a{+) && false+}) return b;",
                    "negated: if ({+!(+}a{+)+}) return b;")
        self.expect("int F(bool a, int b) {\n  if (!a) {\n    return b;\n  }\n  return -b;\n}",
                    "unchecked: if ({+(+}!a{+) && false+}) {",
                    "negated: if ([-!-]a) {")
        self.expect("int F(bool a, int b) {\n  if (a) return b; else return -b;\n}",
                    "negated: if ({+!(+}a{+)+}) return b; else return -b;")

    def test_sides(self):
        self.expect("bool F(bool a, bool b, bool c) {\n  return (a || b) && c;\n}",
                    "left_dropped: return ([-a || -]b) && c;",
                    "right_dropped: return (a[- || b-]) && c;",
                    "left_dropped: return [-(a || b) && -]c;",
                    "right_dropped: return (a || b)[- && c-];")

    def test_statements(self):
        self.expect("void F(int* a, int b) {\n  b += *a;\n  for (;;) ++b;\n  if (a) Put(a, b, -b);\n}",
                    "statement_dropped: [-b += *a;-]",
                    "statement_dropped: for (;;) [-++b;-]{+{}+}",
                    "negated: if ({+!(+}a{+)+}) Put(a, b, -b);",
                    "statement_dropped: if (a) [-Put(a, b, -b);-]{+{}+}",
                    "swapped: if (a) Put(a, [-b, -b-]{+-b, b+});")
        self.expect("void F(int* a, int b) {\n  (void)b;\n  const auto f = [&] {\n    *a = b;\n  };\n}",
                    "statement_dropped: [-*a = b;-]")

    def test_literals(self):
        self.expect("int F(int* a) {\n  return a[1] + 0x10 + 0;\n}",
                    "minus_one: return a[[-1-]{+0+}] + 0x10 + 0;",
                    "plus_one: return a[[-1-]{+2+}] + 0x10 + 0;",
                    "minus_one: return a[1] + {+(+}0x10{+ - 1)+} + 0;",
                    "plus_one: return a[1] + {+(+}0x10{+ + 1)+} + 0;",
                    "plus_one: return a[1] + 0x10 + [-0-]{+1+};")
        # x < 2 is x <= 1.
        self.expect("bool F(int a) {\n  return a < 2;\n}",
                    "comparison: return a <{+=+} 2;",
                    "minus_one: return a < [-2-]{+1+};")

    def test_literals_for_the_compiler(self):
        self.expect("template <int N> int G();\nint F(int a) {\n  int b[3];\n  switch (a) {\n    case 1:\n"
                    "      return G<2>();\n  }\n  return b[a];\n}")

    def test_arguments(self):
        self.expect("void F(int* a, int b, long c) {\n  Put(a, b, b);\n  Interval{c, -c};\n}",
                    "statement_dropped: [-Put(a, b, b);-]",
                    "swapped: Interval{[-c, -c-]{+-c, c+}};")
        self.expect("Interval F(long c) {\n  return {.begin = c, .end = -c};\n}")

    def test_errors(self):
        self.expect("absl::Status F(int a) {\n  RETURN_IF_ERROR(Check(a));\n  return absl::OkStatus();\n}",
                    "error_ignored: [-RETURN_IF_ERROR-]{+static_cast<void>+}(Check(a));")
        self.expect("absl::Status F(int a) {\n  RETURN_IF_ERROR(Check(a + 1));\n  return absl::OkStatus();\n}",
                    "error_ignored: [-RETURN_IF_ERROR-]{+static_cast<void>+}(Check(a + 1));",
                    "minus_one: RETURN_IF_ERROR(Check(a + [-1-]{+0+}));",
                    "plus_one: RETURN_IF_ERROR(Check(a + [-1-]{+2+}));")

    def test_what_is_left_out(self):
        self.expect("""
            // a < b
            static_assert(1 < 2);
            constexpr int kLimit = 5;
            absl::Status Refuse(const char* what, int expected, int found);
            absl::Status F(int a, int b) {
              static_assert(kLimit == 5);
              CHECK(a < b) << "a; b" << a + 1;
              LogInfo("a < b", a + 1);
              if constexpr (kLimit == 5) {
              }
              a = StrCat("", a, b);
              return a ? absl::InternalError("a" + 1) : Refuse("a", a, b);
            }
        """, 'statement_dropped: [-a = StrCat("", a, b);-]',
             'negated: return {+!(+}a{+)+} ? absl::InternalError("a" + 1) : Refuse("a", a, b);')

    def test_functions_have_the_names_of_their_classes(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "a.h").write_text(
                "#pragma once\nnamespace n {\nclass A {\n public:\n  A() : a_(1) {}\n  int Get() { return a_++; }\n"
                "  void Set() { a_ = 0; }\n  int a_;\n};\n}\n")
            found = parsing.parse(parsing.Parsed(pathlib.Path(folder), "a.h", ("-std=c++20",)))
        self.assertEqual([(mutant.id, mutant.function) for mutant in found],
                         [("a.h:5:12:minus_one", "A::A"), ("a.h:5:12:plus_one", "A::A"),
                          ("a.h:7:16:statement_dropped", "A::Set"), ("a.h:7:21:plus_one", "A::Set")])

    def test_what_cannot_be_parsed(self):
        with self.assertRaisesRegex(Failure, "a.cc cannot be parsed"):
            found_in("int F() { return nothing; }")


# A project of two suites; what its compiler makes of the source is a shell script with a check at its end.
SOURCE = """limit=3
step=1
unused=7
spare=$((1 + 2))
i=0
while [ "$i" -lt "$limit" ]; do i=$((i + step)); done
"""
COMPILER = """
sed 's/  *$//' source.sh > compiled.sh && sh -n compiled.sh || exit 1
case $1 in
  own) { echo '#!/bin/sh'; cat compiled.sh; echo 'test "$limit" = 3'; } > own ;;
  user) { echo '#!/bin/sh'; cat compiled.sh; echo 'test "$spare" = 3'; } > user ;;
esac
"""


def replaced(old: str, new: str) -> Mutant:
    source = Source("source.sh", SOURCE.encode())
    begin = SOURCE.index(old)
    return source.mutant("plus_one", "main", Edit(begin, begin + len(old), new))


class ProjectTest(unittest.TestCase):
    """Has the project in a folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "source.sh").write_text(SOURCE)
        (self.root / "compiler.sh").write_text(COMPILER)
        for name in ("own", "user"):
            (self.root / name).touch()
            (self.root / name).chmod(0o755)
        self.project = suites.Project(self.root, self.root, ("sh", "compiler.sh"),
                                      {name: self.root / name for name in ("own", "user")},
                                      limits=suites.Limits(seconds_min=0.5))

    def expect_restored(self) -> None:
        self.assertEqual((self.root / "source.sh").read_text(), SOURCE)


class PlantingTest(ProjectTest):
    def outcome(self, mutant: Mutant) -> Result:
        planting = Planting(self.project, {name: suites.measure(self.project, name)
                                           for name in ("own", "user")})
        result = planting.outcome("a", mutant, ("own", "user"))
        self.expect_restored()
        return result

    def expect(self, old: str, new: str, outcome: Outcome, *asked: str) -> None:
        result = self.outcome(replaced(old, new))
        self.assertEqual((result.outcome, result.suites), (outcome, asked))

    def test_found_by_its_own_suite(self):
        self.expect("limit=3", "limit=4", Outcome.FOUND, "own")

    def test_found_by_a_users_suite(self):
        self.expect("1 + 2", "1 + 3", Outcome.FOUND, "own", "user")

    def test_survived(self):
        self.expect("unused=7", "unused=8", Outcome.SURVIVED, "own", "user")

    def test_hanging(self):
        self.expect("step=1", "step=0", Outcome.HANGING, "own")

    def test_not_a_program(self):
        self.expect("done", "", Outcome.NO_PROGRAM, "own")

    def test_the_same_program(self):
        self.expect("unused=7", "unused=7   ", Outcome.SAME_PROGRAM, "own", "user")

    def test_a_program_that_lacks_what_was_changed(self):
        (self.root / "compiler.sh").write_text("cp source.sh object\n")
        (self.root / "own").write_text("#!/bin/sh\n")
        (self.root / "object").write_text(SOURCE)
        self.project = suites.Project(self.root, self.root, ("sh", "compiler.sh"), {"own": self.root / "own"},
                                      {"source.sh": self.root / "object"})
        planting = Planting(self.project, {"own": suites.measure(self.project, "own")})
        result = planting.outcome("a", replaced("unused=7", "unused=8"), ("own",))
        self.assertEqual(result.outcome, Outcome.SURVIVED)

    def test_a_suite_that_fails_without_a_bug(self):
        (self.root / "source.sh").write_text(SOURCE.replace("limit=3", "limit=4"))
        with self.assertRaisesRegex(Failure, "own does not pass without a bug"):
            suites.measure(self.project, "own")


class TrialTest(ProjectTest):
    FOUND = [(Module("a", ("own", "user")), replaced(old, new))
             for old, new in (("unused=7", "unused=8"), ("limit=3", "limit=4"), ("1 + 2", "1 + 3"), ("=0", "=1"))]

    def judged(self, terms: trial.Terms = trial.Terms()) -> tuple[int, str]:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            status = trial.judge(self.project, self.FOUND, terms, report.Report(5, 0))
        self.expect_restored()
        return status, output.getvalue()

    def test_all_are_planted_and_told(self):
        status, output = self.judged(trial.Terms(json=self.root / "results.json"))
        self.assertEqual(status, 0)
        self.assertRegex(output, r"\nall +4 +2 +0 +2 +50.0 %\n")
        results = json.loads((self.root / "results.json").read_text())
        self.assertEqual([result["outcome"] for result in results["results"]],
                         ["survived", "found", "found", "survived"])

    def test_too_small_a_share_fails(self):
        self.assertEqual(self.judged(trial.Terms(share_min=0.5))[0], 0)
        self.assertEqual(self.judged(trial.Terms(share_min=0.6))[0], 1)

    def test_an_interrupt_tells_what_there_is(self):
        class Interrupted(Planting):
            def plant(self, mutant: Mutant) -> bytes:
                if mutant.replacement == "1 + 3":
                    raise KeyboardInterrupt
                return super().plant(mutant)

        with unittest.mock.patch("trial.Planting", Interrupted):
            status, output = self.judged()
        self.assertEqual(status, 130)
        self.assertRegex(output, r"\nall +2 +1 +0 +1 +50.0 %\n")

    def test_an_interrupted_build_leaves_no_bug(self):
        planting = Planting(self.project, {})
        with unittest.mock.patch("suites.build", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                planting.outcome("a", replaced("limit=3", "limit=4"), ("own",))
        self.expect_restored()

    def test_time_is_up(self):
        done = report.Report(5, 0)
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertTrue(trial.try_all(Planting(self.project, {}), self.FOUND, 0, done))
        self.assertEqual(done.results, [])

    def test_a_seed_chooses_the_same_again(self):
        self.assertEqual(trial.Choice(5).of(self.FOUND), trial.Choice(5).of(self.FOUND))
        self.assertEqual(trial.Choice(5, count=2).of(self.FOUND), trial.Choice(5).of(self.FOUND)[:2])
        self.assertEqual(trial.Choice(5, operators=("swapped",)).of(self.FOUND), [])
        orders = {tuple(mutant.id for _, mutant in trial.Choice(seed).of(self.FOUND)) for seed in range(20)}
        self.assertGreater(len(orders), 1)


class EquivalentTest(unittest.TestCase):
    ENTRY = """# Why there is a list.

file      source.sh
function  main
operator  plus_one
diff      unused=[-7-]{+8+}
why       Nothing reads it.
"""

    def test_what_is_listed_is_left_out_wherever_its_line_is(self):
        listed = replaced("unused=7", "unused=8")
        entry = self.ENTRY.replace("unused=[-7-]{+8+}", listed.diff)
        moved = Mutant(**{**vars(listed), "line": 70})
        found = equivalent.sort_out([moved, replaced("limit=3", "limit=4")], equivalent.parse(entry))
        self.assertEqual(([mutant.line for mutant in found.mutants], found.known, found.stale), ([1], 1, []))

    def test_an_entry_of_no_mutant_is_stale(self):
        found = equivalent.sort_out([replaced("limit=3", "limit=4")], equivalent.parse(self.ENTRY))
        self.assertEqual((found.known, [entry.why for entry in found.stale]), (0, ["Nothing reads it."]))

    def test_an_entry_has_a_reason(self):
        with self.assertRaises(Failure):
            equivalent.parse(re.sub("why.*", "why", self.ENTRY))

    def test_the_list_can_be_read(self):
        equivalent.parse(equivalent.LIST.read_text())


class ReportTest(unittest.TestCase):
    def setUp(self) -> None:
        mutant = replaced("limit=3", "limit=4")
        outcomes = (Outcome.FOUND, Outcome.FOUND, Outcome.HANGING, Outcome.SURVIVED, Outcome.NO_PROGRAM)
        self.report = report.Report(5, 2, [Result("a/b", mutant, outcome, ("own",), 1.0) for outcome in outcomes])

    def test_the_share_is_of_those_that_count(self):
        self.assertEqual(report.share_found(self.report.results), 0.75)
        self.assertIsNone(report.share_found(self.report.of(Outcome.NO_PROGRAM)))

    def test_the_tables_and_the_survivors(self):
        text = self.report.text()
        self.assertRegex(text, r"a/b +4 +2 +1 +1 +75.0 %\n")
        self.assertRegex(text, r"plus_one +4 +2 +1 +1 +75.0 %\n")
        self.assertIn("1 not a program, 0 the same program; 2 on the list", text)
        self.assertIn("source.sh:1:1:plus_one  in main\n    [-limit=3-]{+limit=4+}\n    passed: own\n", text)

    def test_progress_says_what_there_is(self):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            report.Progress(10, None).show(self.report.results)
        self.assertIn("5/10: 2 found, 1 found by hanging, 1 survived, 1 not a program, 0 same program; ends at ",
                      output.getvalue())


class ModulesTest(unittest.TestCase):
    def test_a_module_has_its_own_suite_first(self):
        for module in modules.MODULES:
            self.assertEqual(module.suites[0], module.folder.replace("/", "_") + "_test")

    def test_a_folder_that_the_table_lacks(self):
        self.assertEqual(modules.named(["common/base/"])[0].suites, ("common_base_test",))

    def test_options_without_files_and_precompiled_headers(self):
        self.assertEqual(
            parsing.options_of("cmake -E env A=b /usr/bin/ccache /usr/bin/clang++-19 -Ia -Winvalid-pch "
                               "-Xclang -include-pch -Xclang b/cmake_pch.hxx.pch -Xclang -include "
                               "-Xclang b/cmake_pch.hxx -O1 -o a.o -c a.cc"),
            ("-Ia", "-Winvalid-pch", "-O1"))


if __name__ == "__main__":
    program = unittest.main(exit=False)
    if program.result.wasSuccessful() and program.result.skipped:
        sys.exit(SKIPPED)
    sys.exit(0 if program.result.wasSuccessful() else 1)
