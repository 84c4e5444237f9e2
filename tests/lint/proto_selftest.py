"""Does proto_test.py find what it should? Each rule with protos that break it, compiled, and with some that do not.

    proto_selftest.py [protoc]
"""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import proto_test

PROTOC = sys.argv[1] if len(sys.argv) > 1 else "protoc"

RELEASED = """
syntax = "proto3";
package crossmesh.v1;

enum State {
  reserved 7;
  reserved "STATE_LOST";
  STATE_UNSPECIFIED = 0;
  STATE_READY = 1;
}

message Mesh {
  message Axis { int64 size = 1; }
  reserved 4 to 6, 9;
  reserved "rank";
  string name = 1;
  repeated Axis axes = 2;
  optional int32 rate = 3;
  oneof place {
    string host = 7;
    int64 port = 8;
  }
  map<string, State> states = 10;
}

service MeshService {
  rpc Put(Mesh) returns (Mesh);
  rpc Watch(Mesh) returns (stream Mesh);
}
"""


def compiled(text: str, file: str = "crossmesh/v1/mesh.proto") -> dict[str, list]:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / file
        path.parent.mkdir(parents=True)
        path.write_text(text)
        return proto_test.compile_protos(pathlib.Path(folder), PROTOC)


def api(text: str) -> proto_test.Api:
    return proto_test.api_of(compiled(text))


def changed(before: str, after: str) -> proto_test.Api:
    """RELEASED, but for one place."""
    assert RELEASED.count(before) == 1, before
    return api(RELEASED.replace(before, after))


class ProtoTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.released = api(RELEASED)

    def expect_breaks(self, before: str, after: str, *expected: str):
        self.assertEqual(proto_test.breaks(self.released, changed(before, after)), list(expected))

    def expect_unreserved(self, before: str, after: str, *expected: str):
        self.assertEqual(proto_test.unreserved(self.released, changed(before, after)), list(expected))


class BreaksTest(ProtoTest):
    def test_the_same_breaks_nothing(self):
        self.assertEqual(proto_test.breaks(self.released, api(RELEASED)), [])
        self.assertEqual(proto_test.unreserved(self.released, api(RELEASED)), [])

    def test_additions_break_nothing(self):
        for before, after in (("string name = 1;", "string name = 1; bytes digest = 11;"),
                              ("STATE_READY = 1;", "STATE_READY = 1; STATE_GONE = 2;"),
                              ("int64 port = 8;", "int64 port = 8; bytes address = 11;"),
                              ("rpc Put", "rpc Get(Mesh) returns (Mesh); rpc Put"),
                              ("service MeshService", "message Host {} service HostService {} service MeshService")):
            self.expect_breaks(before, after)
            self.expect_unreserved(before, after)

    def test_a_field_that_was_removed(self):
        self.expect_breaks("string name = 1;", "", "message crossmesh.v1.Mesh: name (1) was removed")

    def test_a_field_that_was_renumbered(self):
        self.expect_breaks("string name = 1;", "string name = 11;",
                           "message crossmesh.v1.Mesh: name had number 1, now 11")

    def test_a_field_that_was_renamed(self):
        self.expect_breaks("string name = 1;", "string title = 1;",
                           "message crossmesh.v1.Mesh: name (1) had name name, now title")

    def test_two_fields_that_changed_places(self):
        self.expect_breaks("string host = 7;\n    int64 port = 8;", "string host = 8;\n    int64 port = 7;",
                           "message crossmesh.v1.Mesh: host had number 7, now 8",
                           "message crossmesh.v1.Mesh: port had number 8, now 7")

    def test_a_field_of_another_type(self):
        self.expect_breaks("string name = 1;", "bytes name = 1;",
                           "message crossmesh.v1.Mesh: name (1) had type string, now bytes")
        self.expect_breaks("repeated Axis axes = 2;", "repeated Mesh axes = 2;",
                           "message crossmesh.v1.Mesh: axes (2) had type crossmesh.v1.Mesh.Axis, now crossmesh.v1.Mesh")

    def test_a_map_with_another_value(self):
        self.expect_breaks("map<string, State> states", "map<string, int64> states",
                           "message crossmesh.v1.Mesh.StatesEntry: value (2) had type crossmesh.v1.State, now int64")

    def test_a_field_with_another_label(self):
        self.expect_breaks("string name = 1;", "repeated string name = 1;",
                           "message crossmesh.v1.Mesh: name (1) had label singular, now repeated")
        self.expect_breaks("optional int32 rate = 3;", "int32 rate = 3;",
                           "message crossmesh.v1.Mesh: rate (3) had label optional, now singular")

    def test_a_field_that_left_or_joined_a_oneof(self):
        self.expect_breaks("int64 port = 8;\n  }", "}\n  int64 port = 8;",
                           "message crossmesh.v1.Mesh: port (8) had oneof place, now none")
        self.expect_breaks("string name = 1;", "oneof title { string name = 1; }",
                           "message crossmesh.v1.Mesh: name (1) had oneof none, now title")

    def test_an_enum_value_that_was_removed_or_renamed(self):
        self.expect_breaks("STATE_READY = 1;", "", "enum crossmesh.v1.State: STATE_READY (1) was removed")
        self.expect_breaks("STATE_READY = 1;", "STATE_UP = 1;",
                           "enum crossmesh.v1.State: STATE_READY (1) had name STATE_READY, now STATE_UP")

    def test_a_message_enum_or_service_that_was_removed(self):
        now = api('syntax = "proto3"; package crossmesh.v1; message Mesh {}')
        self.assertEqual([line for line in proto_test.breaks(self.released, now) if line.endswith("was removed")][-3:],
                         ["message crossmesh.v1.Mesh.StatesEntry was removed", "enum crossmesh.v1.State was removed",
                          "service crossmesh.v1.MeshService was removed"])

    def test_a_method_that_was_removed_or_changed(self):
        self.expect_breaks("rpc Put(Mesh) returns (Mesh);", "",
                           "service crossmesh.v1.MeshService: method Put was removed")
        self.expect_breaks("rpc Watch(Mesh) returns (stream Mesh);", "rpc Watch(Mesh) returns (Mesh);",
                           "service crossmesh.v1.MeshService: method Watch was "
                           "(crossmesh.v1.Mesh) returns (stream crossmesh.v1.Mesh), now "
                           "(crossmesh.v1.Mesh) returns (crossmesh.v1.Mesh)")


class ReservedTest(ProtoTest):
    def test_what_was_removed_is_reserved(self):
        self.expect_unreserved("string name = 1;", "",
                               'message crossmesh.v1.Mesh: number "1" is not used any more: reserve it',
                               'message crossmesh.v1.Mesh: name "name" is not used any more: reserve it')
        self.expect_unreserved("string name = 1;", 'reserved 1; reserved "name";')
        self.expect_unreserved("STATE_READY = 1;", 'reserved 1; reserved "STATE_READY";')

    def test_what_is_reserved_stays_reserved(self):
        self.expect_unreserved("reserved 4 to 6, 9;", "reserved 4 to 6;",
                               'message crossmesh.v1.Mesh: number "9" is not used any more: reserve it')
        self.expect_unreserved("reserved 7;", "",
                               'enum crossmesh.v1.State: number "7" is not used any more: reserve it')

    def test_what_is_reserved_is_not_used_again(self):
        self.expect_unreserved("reserved 4 to 6, 9;", "reserved 4, 6, 9; bool whole = 5;",
                               'message crossmesh.v1.Mesh: number "5" was reserved, and is used again')
        self.expect_unreserved('reserved "rank";', "int32 rank = 11;",
                               'message crossmesh.v1.Mesh: name "rank" was reserved, and is used again')

    def test_ranges_without_an_end_are_refused(self):
        with self.assertRaisesRegex(ValueError, "Mesh: expected at most 1000 reserved numbers"):
            changed("reserved 4 to 6, 9;", "reserved 20 to max;")


class RecordTest(ProtoTest):
    def record(self, now: proto_test.Api, released: proto_test.Api | None) -> tuple[int, bool]:
        """The exit code, and whether a baseline was written."""
        with tempfile.TemporaryDirectory() as folder:
            baseline = pathlib.Path(folder) / "baseline.txt"
            with mock.patch.object(proto_test, "BASELINE", baseline), contextlib.redirect_stdout(io.StringIO()):
                return proto_test.record(now, released), baseline.exists()

    def test_the_first_record_is_compared_with_nothing(self):
        self.assertEqual(self.record(api(RELEASED), None), (0, True))

    def test_later_ones_reserve_what_they_drop(self):
        self.assertEqual(self.record(changed("string name = 1;", ""), self.released), (1, False))
        reserved = changed("string name = 1;", 'reserved 1; reserved "name";')
        self.assertEqual(self.record(reserved, self.released), (0, True))


class FilesTest(unittest.TestCase):
    def test_the_baseline_is_read_as_it_was_written(self):
        released = api(RELEASED)
        released.release = "0.1.0"
        self.assertEqual(proto_test.from_text(proto_test.to_text(released)), released)

    def test_internal_protocols_are_no_part_of_the_api(self):
        internal = next(iter(proto_test.INTERNAL))
        descriptor_set = compiled(RELEASED, internal)
        self.assertEqual(proto_test.api_of(descriptor_set), proto_test.Api())
        self.assertEqual(proto_test.internal_problems(descriptor_set), [])

    def test_an_internal_protocol_that_does_not_exist(self):
        self.assertEqual(len(proto_test.internal_problems(compiled(RELEASED))), len(proto_test.INTERNAL))

    def test_an_internal_protocol_that_the_api_imports(self):
        internal = next(iter(proto_test.INTERNAL))
        descriptor_set = {"file": [{"name": [internal]}, {"name": ["a.proto"], "dependency": [internal]}]}
        self.assertEqual(len(proto_test.internal_problems(descriptor_set)), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
