#include "frontend/onnx/attributes.h"

#include <string_view>

#include "support/diagnostics.h"
#include "support/strings.h"

namespace piper::frontend {

using ::onnx::AttributeProto;
using support::Expected;
using support::user_error;

namespace {

struct Row {
  std::string_view op_type;
  std::string_view attributes;
};
constexpr Row kTable[] = {
#define PIPER_ONNX_ATTRIBUTES(op_type, attributes) {#op_type, attributes},
#include "frontend/onnx/attribute_table.def"
#undef PIPER_ONNX_ATTRIBUTES
};

const Row* find_row(std::string_view op_type) {
  for (const Row& row : kTable) {
    if (row.op_type == op_type) return &row;
  }
  return nullptr;
}

// The letter of the table for the form an attribute has. Files of IR 1 may leave the type out.
char form_of(const AttributeProto& a) {
  switch (a.type()) {
    case AttributeProto::INT:
      return 'i';
    case AttributeProto::FLOAT:
      return 'f';
    case AttributeProto::STRING:
      return 's';
    case AttributeProto::TENSOR:
      return 't';
    case AttributeProto::GRAPH:
      return 'g';
    case AttributeProto::INTS:
      return 'I';
    case AttributeProto::FLOATS:
      return 'F';
    case AttributeProto::STRINGS:
      return 'S';
    default:
      break;
  }
  if (a.has_i()) return 'i';
  if (a.has_f()) return 'f';
  if (a.has_s()) return 's';
  if (a.has_t()) return 't';
  if (a.has_g()) return 'g';
  if (a.ints_size() > 0) return 'I';
  if (a.floats_size() > 0) return 'F';
  return '?';
}

std::string_view form_name(char form) {
  switch (form) {
    case 'i':
      return "an integer";
    case 'f':
      return "a float";
    case 's':
      return "a string";
    case 't':
      return "a tensor";
    case 'g':
      return "a graph";
    case 'I':
      return "a list of integers";
    case 'F':
      return "a list of floats";
    case 'S':
      return "a list of strings";
    default:
      return "of an unknown type";
  }
}

Expected<void> check(const ::onnx::NodeProto& node, const Row& row, const AttributeProto& attribute,
                     char form) {
  std::vector<std::string> names;
  for (const std::string& item : support::split(row.attributes, ' ')) {
    if (item.empty()) continue;
    const std::string name = item.substr(0, item.find(':'));
    names.push_back(name);
    if (name != attribute.name()) continue;
    if (item.back() == form) return {};
    // An empty list has no type that old files could tell.
    if (form == '?' && std::string_view("IFS").find(item.back()) != std::string_view::npos)
      return {};
    return user_error("attribute `" + attribute.name() + "` is " + std::string(form_name(form)) +
                      ", but must be " + std::string(form_name(item.back())));
  }
  std::string help;
  if (std::string near = support::did_you_mean(attribute.name(), names); !near.empty())
    help = "did you mean `" + near + "`?";
  return user_error(node.op_type() + " has no attribute `" + attribute.name() + "`", help);
}

void store(const AttributeProto& a, char form, NodeAttributes* out) {
  switch (form) {
    case 'i':
      out->attrs.set(a.name(), a.i());
      break;
    case 'f':
      out->attrs.set(a.name(), static_cast<double>(a.f()));
      break;
    case 's':
      out->attrs.set(a.name(), a.s());
      break;
    case 't':
      out->tensors[a.name()] = &a.t();
      break;
    case 'g':
      out->graphs[a.name()] = &a.g();
      break;
    case 'I':
      out->attrs.set(a.name(), std::vector<int64_t>(a.ints().begin(), a.ints().end()));
      break;
    case 'F':
      out->attrs.set(a.name(), std::vector<double>(a.floats().begin(), a.floats().end()));
      break;
    case 'S':  // names, none of which has a space
      out->attrs.set(a.name(),
                     support::join({a.strings().begin(), a.strings().end()}, " "));
      break;
    default:
      break;
  }
}

}  // namespace

Expected<NodeAttributes> decode_attributes(const ::onnx::NodeProto& node) {
  NodeAttributes result;
  const bool standard = node.domain().empty() || node.domain() == "ai.onnx";
  const Row* row = standard ? find_row(node.op_type()) : nullptr;
  for (const AttributeProto& attribute : node.attribute()) {
    const char form = form_of(attribute);
    if (result.attrs.has(attribute.name())) {
      return user_error("attribute `" + attribute.name() + "` is given twice");
    }
    if (row != nullptr) {
      if (auto ok = check(node, *row, attribute, form); !ok) return tl::make_unexpected(ok.error());
    }
    store(attribute, form, &result);
  }
  return result;
}

}  // namespace piper::frontend
