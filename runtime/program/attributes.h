// attributes.h: the typed attributes of a node, read in place.
#pragma once

#include "program/program.h"

namespace opforge {

class NodeAttributes final : public Attributes {
 public:
  NodeAttributes() = default;
  NodeAttributes(const Program* program, const format::Node* node) : program_(program), node_(node) {}

  bool has(const char* name) const override { return find(name, 0) != nullptr; }
  int64_t get_int(const char* name, int64_t otherwise) const override;
  double get_float(const char* name, double otherwise) const override;
  StringView get_string(const char* name, const char* otherwise) const override;
  bool get_ints(const char* name, const int64_t** values, int64_t* count) const override;
  bool get_floats(const char* name, const float** values, int64_t* count) const override;
  BytecodeView get_bytecode(const char* name) const override;
  int32_t get_graph(const char* name) const override;
  StringView get_text(const char* name, int64_t index) const override;

  // Null when absent or, for kind other than 0, when it has another kind.
  const format::Attribute* find(const char* name, uint32_t kind) const;

 private:
  const Program* program_ = nullptr;
  const format::Node* node_ = nullptr;
};

}  // namespace opforge
