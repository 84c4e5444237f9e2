#include "controller/requests/message_footprint.h"

#include <string>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/wire_format_lite.h>

namespace crossmesh {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

constexpr int kDepthMax = 100;  // as protobuf's own
// Beside what is asked of the allocator, for each piece.
constexpr int64_t kPieceBytes = 16;
// Arrays grow by doubling, and have a header and some elements from the first one on.
constexpr int64_t kSlack = 2;
constexpr int64_t kElementBytes = 48;
// Of an array that comes as a whole; no number takes more.
constexpr int64_t kNumberBytes = kSlack * static_cast<int64_t>(sizeof(int64_t));
// The first one of a message needs the set of them.
constexpr int64_t kUnknownBytes =
    kSlack * static_cast<int64_t>(sizeof(google::protobuf::UnknownField)) +
    static_cast<int64_t>(sizeof(google::protobuf::UnknownFieldSet));
// An entry of a map is in a node of its table, beside the message that it is while it is parsed.
constexpr int64_t kEntryBytes = 128;

class Walk {
 public:
  Walk(google::protobuf::io::ZeroCopyInputStream& bytes, int64_t bytes_max)
      : in_(&bytes), bytes_max_(bytes_max) {}

  // Of a message up to where its bytes end, or to the end of its group. Whether it is one.
  bool Message(const Descriptor* type, int depth) {
    if (depth > kDepthMax) return false;
    if (type != nullptr) bytes_ += EmptyBytes(type);
    while (bytes_ <= bytes_max_) {
      const uint32_t tag = in_.ReadTag();
      if (tag == 0) return in_.ConsumedEntireMessage();
      if (WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_END_GROUP) {
        return in_.LastTagWas(group_end_);
      }
      const int number = WireFormatLite::GetTagFieldNumber(tag);
      if (number == 0) return false;
      if (!Field(type == nullptr ? nullptr : type->FindFieldByNumber(number), tag, depth)) {
        return false;
      }
    }
    return true;
  }

  int64_t bytes() const { return bytes_; }

 private:
  bool Field(const FieldDescriptor* field, uint32_t tag, int depth) {
    const WireFormatLite::WireType written = WireFormatLite::GetTagWireType(tag);
    if (field != nullptr && !IsReadAs(*field, written)) field = nullptr;
    switch (written) {
      case WireFormatLite::WIRETYPE_VARINT: {
        uint64_t value = 0;
        Number(field);
        return in_.ReadVarint64(&value);
      }
      case WireFormatLite::WIRETYPE_FIXED64:
        Number(field);
        return in_.Skip(sizeof(uint64_t));
      case WireFormatLite::WIRETYPE_FIXED32:
        Number(field);
        return in_.Skip(sizeof(uint32_t));
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        return Delimited(field, depth);
      case WireFormatLite::WIRETYPE_START_GROUP:
        return Group(WireFormatLite::GetTagFieldNumber(tag), depth);
      case WireFormatLite::WIRETYPE_END_GROUP:
        break;
    }
    return false;
  }

  // What is written otherwise than its field is kept as unknown.
  static bool IsReadAs(const FieldDescriptor& field, WireFormatLite::WireType written) {
    const auto type = static_cast<WireFormatLite::FieldType>(field.type());
    return WireFormatLite::WireTypeForFieldType(type) == written ||
           (field.is_packable() && written == WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  }

  void Number(const FieldDescriptor* field) {
    if (field == nullptr) {
      bytes_ += kUnknownBytes;
    } else if (field->is_repeated()) {
      bytes_ += kElementBytes;
    }
  }

  bool Delimited(const FieldDescriptor* field, int depth) {
    int length = 0;
    if (!in_.ReadVarintSizeAsInt(&length)) return false;
    if (field == nullptr) {
      bytes_ += kUnknownBytes;
      return Text(length);
    }
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        bytes_ += kPieceBytes + ElementBytes(*field) + (field->is_map() ? kEntryBytes : 0);
        return Within(length, field->message_type(), depth);
      case FieldDescriptor::CPPTYPE_STRING:
        bytes_ += ElementBytes(*field);
        return Text(length);
      default:
        bytes_ +=
            kElementBytes + kNumberBytes * length;  // packed: a byte is a number, or a part of one
        return in_.Skip(length);
    }
  }

  static int64_t ElementBytes(const FieldDescriptor& field) {
    return field.is_repeated() ? kElementBytes : 0;
  }

  bool Text(int length) {
    bytes_ += static_cast<int64_t>(sizeof(std::string)) + kPieceBytes;
    if (length >= static_cast<int>(sizeof(std::string)) / 2) bytes_ += length + 1 + kPieceBytes;
    return in_.Skip(length);
  }

  bool Within(int length, const Descriptor* type, int depth) {
    if (length > in_.BytesUntilLimit() && in_.BytesUntilLimit() >= 0) return false;
    const auto limit = in_.PushLimit(length);
    if (!Message(type, depth + 1)) return false;
    in_.PopLimit(limit);
    return true;
  }

  // Messages of ours have none: what is in it is kept as unknown.
  bool Group(int number, int depth) {
    bytes_ += kUnknownBytes + kPieceBytes +
              static_cast<int64_t>(sizeof(google::protobuf::UnknownFieldSet));
    const uint32_t outer = group_end_;
    group_end_ = WireFormatLite::MakeTag(number, WireFormatLite::WIRETYPE_END_GROUP);
    if (!Message(nullptr, depth + 1)) return false;
    group_end_ = outer;
    return true;
  }

  int64_t EmptyBytes(const Descriptor* type) {
    int64_t& bytes = empty_bytes_[type];
    if (bytes == 0) {
      const auto* prototype =
          google::protobuf::MessageFactory::generated_factory()->GetPrototype(type);
      bytes = static_cast<int64_t>(prototype->SpaceUsedLong());
    }
    return bytes;
  }

  google::protobuf::io::CodedInputStream in_;
  const int64_t bytes_max_;
  absl::flat_hash_map<const Descriptor*, int64_t> empty_bytes_;
  uint32_t group_end_ = 0;  // what ends the group that is read; 0 outside of any
  int64_t bytes_ = 0;
};

}  // namespace

absl::StatusOr<int64_t> FootprintOf(const Descriptor& type,
                                    google::protobuf::io::ZeroCopyInputStream& bytes,
                                    int64_t bytes_max) {
  Walk walk(bytes, bytes_max);
  if (walk.Message(&type, 1)) return walk.bytes();
  return absl::InvalidArgumentError(
      absl::StrCat("request: expected one message ", type.full_name(), ", found other bytes"));
}

}  // namespace crossmesh
