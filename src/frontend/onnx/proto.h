// The protobuf classes of ONNX, and the fields that are newer than the installed schema. Only this
// folder and its tests include it; it is precompiled.
#pragma once

#include <onnx/onnx_pb.h>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/unknown_field_set.h>

#include <string>
#include <vector>

namespace piper::frontend {

// Numbers of `metadata_props` in messages whose schema here does not know it yet.
constexpr int kNodeMetadata = 9;
constexpr int kValueInfoMetadata = 4;
constexpr int kTensorMetadata = 16;
constexpr int kGraphMetadata = 16;

// The string in field `field` of `message` that the installed schema does not know; "" when absent.
inline std::string unknown_string(const google::protobuf::Message& message, int field) {
  std::string text;
  const auto& unknown = message.GetReflection()->GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); i++) {
    const auto& entry = unknown.field(i);
    if (entry.number() == field && entry.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) text = entry.length_delimited();
  }
  return text;
}

// The value of `key` among the metadata in unknown field `field` of `message`; "" when absent.
template <class Message>
std::string metadata(const Message& message, int field, const std::string& key) {
  const auto& unknown = message.GetReflection()->GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); i++) {
    const auto& entry = unknown.field(i);
    if (entry.number() != field) continue;
    if (entry.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) continue;
    ::onnx::StringStringEntryProto pair;
    if (pair.ParseFromString(entry.length_delimited()) && pair.key() == key) return pair.value();
  }
  return {};
}

}  // namespace piper::frontend
