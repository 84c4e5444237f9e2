#include "client/python/extension/json_text.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

nlohmann::json DocumentOf(const Message& message);

// Of a field that is not repeated, or of one of its elements.
nlohmann::json ValueOf(const Message& message, const FieldDescriptor& field, int index) {
  const google::protobuf::Reflection& from = *message.GetReflection();
  const auto get = [&](auto one, auto repeated) -> nlohmann::json {
    return field.is_repeated() ? (from.*repeated)(message, &field, index)
                               : (from.*one)(message, &field);
  };
  using From = google::protobuf::Reflection;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return get(&From::GetInt32, &From::GetRepeatedInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return get(&From::GetInt64, &From::GetRepeatedInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return get(&From::GetUInt32, &From::GetRepeatedUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return get(&From::GetUInt64, &From::GetRepeatedUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return get(&From::GetDouble, &From::GetRepeatedDouble);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return get(&From::GetFloat, &From::GetRepeatedFloat);
    case FieldDescriptor::CPPTYPE_BOOL:
      return get(&From::GetBool, &From::GetRepeatedBool);
    case FieldDescriptor::CPPTYPE_STRING:
      return get(&From::GetString, &From::GetRepeatedString);
    case FieldDescriptor::CPPTYPE_ENUM:
      return (field.is_repeated() ? from.GetRepeatedEnum(message, &field, index)
                                  : from.GetEnum(message, &field))
          ->name();
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return DocumentOf(field.is_repeated() ? from.GetRepeatedMessage(message, &field, index)
                                            : from.GetMessage(message, &field));
  }
  return nullptr;
}

nlohmann::json FieldOf(const Message& message, const FieldDescriptor& field) {
  if (!field.is_repeated()) return ValueOf(message, field, 0);
  nlohmann::json values = nlohmann::json::array();
  const int count = message.GetReflection()->FieldSize(message, &field);
  for (int i = 0; i < count; ++i) values.push_back(ValueOf(message, field, i));
  return values;
}

// Without messages that are not there: what is not known of a plan is no zero.
nlohmann::json DocumentOf(const Message& message) {
  nlohmann::json document = nlohmann::json::object();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.has_presence() && !message.GetReflection()->HasField(message, &field)) continue;
    document[field.name()] = FieldOf(message, field);
  }
  return document;
}

}  // namespace

std::string JsonTextOf(const Message& message) {
  return DocumentOf(message).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace crossmesh
