"""Does names_test.py find what it should?"""

import unittest

import names_test
import source_tree


class TypesTest(unittest.TestCase):
    def test_types_with_their_namespaces(self):
        text = """
namespace crossmesh::training {

struct Loop;
class alignas(64) Clock final : public Base {
  struct Inner {};
};
template <typename T>
class Table {};
enum class Kind { kOne };
struct Clock::Tick {
};
class OfALongName
    : public Base {
};
struct Entry MakeEntry(int a) {
}

}  // namespace crossmesh::training
"""
        self.assertEqual(list(names_test.types_of(text)), [
            "crossmesh::training::" + name for name in ("Clock", "Table", "Kind", "OfALongName")])

    def test_anonymous_namespaces_are_their_files_own(self):
        text = """
namespace crossmesh {
namespace {
struct Cell {};
}  // namespace
struct Row {};
}  // namespace crossmesh
"""
        self.assertEqual(list(names_test.types_of(text)), ["crossmesh::Row"])


class TwiceTest(unittest.TestCase):
    TEXT = "namespace crossmesh {\nstruct Row {};\n}  // namespace crossmesh\n"

    def problems(self, *paths: str) -> list[str]:
        return list(names_test.names_twice({path: self.TEXT for path in paths}))

    def test_a_name_twice(self):
        self.assertEqual(self.problems("common/a.h", "worker/b.cc"), [
            "crossmesh::Row is defined in common/a.h and in worker/b.cc: two ideas need two names"])

    def test_stand_ins_are_libraries_of_their_own(self):
        self.assertEqual(self.problems("common/a.h", "tests/standin/b.h"), [])
        self.assertEqual(len(self.problems("tests/standin/a.h", "tests/standin/b.h")), 1)


class MissingIncludesTest(unittest.TestCase):
    TEXTS = {
        "common/row.h": "namespace crossmesh {\nstruct Row {};\n}  // namespace crossmesh\n",
        "common/table.h": '#include "common/row.h"\n',
        "worker/use.cc": "",
    }

    def problems(self, use: str, *included: str) -> list[str]:
        texts = {**self.TEXTS, "worker/use.cc": use}
        graph = source_tree.IncludeGraph({"common/row.h": [], "common/table.h": ["common/row.h"],
                                          "worker/use.cc": list(included)})
        return list(names_test.missing_includes(texts, graph))

    def test_a_type_that_nothing_included_defines(self):
        self.assertEqual(self.problems("Row Make();"), ["worker/use.cc: names Row and does not include common/row.h"])

    def test_what_is_included_or_declared_ahead(self):
        self.assertEqual(self.problems("Row Make();", "common/table.h"), [])
        self.assertEqual(self.problems("struct Row;\nRow* Find();"), [])

    def test_other_names(self):
        self.assertEqual(self.problems("v1::Row a; // Row\nint b = Row(); c.Row;\nTEST(Row, Row) {}"), [])


if __name__ == "__main__":
    unittest.main()
