// attributes.cpp: look-up by name; a node has few attributes, so a linear search is the fastest.
#include "program/attributes.h"

namespace opforge {

const format::Attribute* NodeAttributes::find(const char* name, uint32_t kind) const {
  const format::Attribute* first = program_->attributes + node_->first_attribute;
  for (uint32_t k = 0; k < node_->attributes; ++k) {
    if (same_text(program_->text(first[k].name), name)) {
      return kind == 0 || first[k].kind == kind ? first + k : nullptr;
    }
  }
  return nullptr;
}

int64_t NodeAttributes::get_int(const char* name, int64_t otherwise) const {
  const format::Attribute* a = find(name, format::kInt);
  return a == nullptr ? otherwise : static_cast<int64_t>(a->payload);
}

double NodeAttributes::get_float(const char* name, double otherwise) const {
  const format::Attribute* a = find(name, 0);
  if (a == nullptr) return otherwise;
  if (a->kind == format::kInt) return static_cast<double>(static_cast<int64_t>(a->payload));
  if (a->kind != format::kFloat) return otherwise;
  double value;
  std::memcpy(&value, &a->payload, sizeof value);
  return value;
}

StringView NodeAttributes::get_string(const char* name, const char* otherwise) const {
  const format::Attribute* a = find(name, format::kText);
  if (a != nullptr) return program_->text(static_cast<uint32_t>(a->payload));
  return {otherwise, static_cast<int64_t>(std::strlen(otherwise))};
}

bool NodeAttributes::get_ints(const char* name, const int64_t** values, int64_t* count) const {
  const format::Attribute* a = find(name, format::kInts);
  if (a == nullptr) return false;
  *values = program_->integers + a->payload;
  *count = a->count;
  return true;
}

bool NodeAttributes::get_floats(const char* name, const float** values, int64_t* count) const {
  const format::Attribute* a = find(name, 0);
  if (a == nullptr || (a->kind != format::kFloats && !(a->kind == format::kInts && a->count == 0)))
    return false;
  *values = a->count == 0 ? program_->floats : program_->floats + a->payload;  // [] is stored as ints
  *count = a->count;
  return true;
}

BytecodeView NodeAttributes::get_bytecode(const char* name) const {
  const format::Attribute* a = find(name, format::kBlob);
  return a == nullptr ? BytecodeView{nullptr, 0} : program_->blob(static_cast<uint32_t>(a->payload));
}

int32_t NodeAttributes::get_graph(const char* name) const {
  const format::Attribute* a = find(name, format::kSubgraph);
  return a == nullptr ? -1 : static_cast<int32_t>(a->payload);
}

StringView NodeAttributes::get_text(const char* name, int64_t index) const {
  const format::Attribute* a = find(name, format::kTexts);
  if (a == nullptr || index < 0 || index >= a->count) return {nullptr, 0};
  return program_->text(static_cast<uint32_t>(program_->ids[a->payload + index]));
}

}  // namespace opforge
