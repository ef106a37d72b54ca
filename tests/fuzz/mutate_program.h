// mutate_program.h: changes a valid program where it stays a program: attributes, ids, dtypes, ranks,
// dimensions, layouts, operators' names, and the constants that kernels read as sizes and indices.
//
// Bytes changed at random hardly ever pass the verifier. These changes do in most cases, so that kernels meet
// nodes that no compiler would write.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>

#include "sign.h"

namespace opforge::test {

class ProgramMutator {
 public:
  ProgramMutator(uint8_t* bytes, size_t size, uint32_t seed) : bytes_(bytes), size_(size), random_(seed) {}

  // One change; false when the file has no program to change.
  bool change() {
    const auto program = section(bytes_, size_, format::kProgram);
    const auto values = section(bytes_, size_, format::kValues);
    if (!program || !values || program->size < sizeof(format::ProgramHead)) return false;
    std::memcpy(&head_, bytes_ + program->offset, sizeof head_);
    uint64_t at = sizeof head_;
    const auto part = [&](uint64_t count, uint64_t bytes) {
      uint8_t* first = bytes_ + program->offset + at;
      at += count * bytes;
      return first;
    };
    part(head_.graphs, sizeof(format::Graph));
    nodes_ = part(head_.nodes, sizeof(format::Node));
    attributes_ = part(head_.attributes, sizeof(format::Attribute));
    integers_ = part(head_.integers, 8);
    ids_ = part(head_.ids, 4);
    floats_ = part(head_.floats, 4);
    if (at > program->size) return false;
    std::memcpy(&n_values_, bytes_ + values->offset, 4);
    values_ = bytes_ + values->offset + 16;
    if (16 + uint64_t{n_values_} * sizeof(format::Value) > values->size || n_values_ == 0) return false;
    switch (below(10)) {
      case 0:
      case 1:
        return attribute();
      case 2:
        return list_item();
      case 3:
      case 4:
        return id();
      case 5:
        return value();
      case 6:
        return dimension();
      case 7:
      case 8:
        return constant();
      default:
        return node();
    }
  }

 private:
  uint32_t below(uint32_t n) { return n == 0 ? 0 : static_cast<uint32_t>(random_() % n); }

  int64_t number(int64_t old) {
    static constexpr int64_t kOdd[] = {
        0,   1,       -1,    2,          -2,           3,         4,         7,
        8,   15,      16,    17,         64,           127,       128,       255,
        256, 1 << 15, 65537, 0x7FFFFFFF, -(1ll << 31), 1ll << 32, INT64_MAX, INT64_MIN};
    switch (below(4)) {
      case 0:
        return static_cast<int64_t>(static_cast<uint64_t>(old) + 1);
      case 1:
        return static_cast<int64_t>(static_cast<uint64_t>(old) - 1);
      case 2:
        return static_cast<int64_t>(0 - static_cast<uint64_t>(old));
      default:
        return kOdd[below(sizeof kOdd / sizeof kOdd[0])];
    }
  }
  float real() {
    static constexpr float kOdd[] = {0.0f, -0.0f, 1.0f, -1.0f, 0.5f, 1e-30f, 1e30f, 1e-42f, 3e38f, -2.5f};
    const uint32_t k = below(12);
    return k == 10 ? __builtin_nanf("") : k == 11 ? __builtin_inff() : kOdd[k];
  }
  template <class T>
  T get(const uint8_t* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  template <class T>
  void put(uint8_t* at, const T& value) {
    std::memcpy(at, &value, sizeof value);
  }

  bool attribute() {
    if (head_.attributes == 0) return false;
    uint8_t* at = attributes_ + uint64_t{below(head_.attributes)} * sizeof(format::Attribute);
    auto a = get<format::Attribute>(at);
    const uint32_t what = below(8);
    if (what == 0) {  // the name of another one
      a.name = get<format::Attribute>(attributes_ + uint64_t{below(head_.attributes)} * sizeof a).name;
    } else if (what == 1) {  // a list that is longer or shorter
      a.count = static_cast<uint32_t>(number(a.count)) & 0xFF;
    } else if (what == 2 && a.kind != format::kInt) {
      a.payload = static_cast<uint64_t>(number(static_cast<int64_t>(a.payload))) & 0xFFFF;
    } else if (what == 3) {
      a.kind = 1 + below(10);
    } else if (a.kind == format::kFloat) {
      const double value = real();
      std::memcpy(&a.payload, &value, 8);
    } else if (a.kind == format::kText) {  // another text attribute's, such as a mode
      a.payload =
          get<format::Attribute>(attributes_ + uint64_t{below(head_.attributes)} * sizeof a).payload & 0xFFFF;
    } else {
      a.payload = static_cast<uint64_t>(number(static_cast<int64_t>(a.payload)));
    }
    put(at, a);
    return true;
  }

  bool list_item() {
    if (head_.integers != 0 && (head_.floats == 0 || below(2) == 0)) {
      uint8_t* at = integers_ + uint64_t{below(head_.integers)} * 8;
      put(at, number(get<int64_t>(at)));
      return true;
    }
    if (head_.floats == 0) return false;
    put(floats_ + uint64_t{below(head_.floats)} * 4, real());
    return true;
  }

  // An input of a node becomes another value (mostly an earlier one) or absent.
  bool id() {
    if (head_.nodes == 0) return false;
    const auto n = get<format::Node>(nodes_ + uint64_t{below(head_.nodes)} * sizeof(format::Node));
    const bool output = below(8) == 0;
    const uint32_t first = output ? n.first_output : n.first_input, count = output ? n.outputs : n.inputs;
    if (count == 0 || uint64_t{first} + count > head_.ids) return false;
    uint8_t* at = ids_ + uint64_t{first + below(count)} * 4;
    if (output || below(4) == 0) {
      put<int32_t>(at, -1);
      return true;
    }
    int32_t most = static_cast<int32_t>(n_values_);
    if (n.outputs != 0 && n.first_output < head_.ids) {
      const auto out = get<int32_t>(ids_ + uint64_t{n.first_output} * 4);
      if (out > 0 && out < most) most = out;
    }
    put(at, static_cast<int32_t>(below(static_cast<uint32_t>(most))));
    return true;
  }

  bool value() {
    uint8_t* at = values_ + uint64_t{below(n_values_)} * sizeof(format::Value);
    auto v = get<format::Value>(at);
    switch (below(7)) {
      case 0:
      case 1:
        v.dtype = static_cast<uint8_t>(1 + below(27));
        break;
      case 2:
        v.rank = static_cast<int8_t>(static_cast<int>(below(10)) - 1);
        break;
      case 3:
        v.layout = static_cast<uint8_t>(below(4));
        break;
      case 4:
        v.halo[below(4)] = static_cast<uint8_t>(below(6));
        break;
      case 5: {  // the packing, the offset or the dimensions of another value
        const auto other = get<format::Value>(values_ + uint64_t{below(n_values_)} * sizeof v);
        if (below(2) == 0) {
          v.packing = other.packing;
        } else {
          v.first_dimension = other.first_dimension;
          v.rank = other.rank;
        }
        break;
      }
      default:
        v.quantisation = static_cast<uint8_t>(below(4));
        v.quantisation_axis = static_cast<int8_t>(static_cast<int>(below(10)) - 3);
        v.scale = static_cast<int32_t>(below(n_values_));
        v.zero_point = static_cast<int32_t>(below(n_values_)) - 1;
        v.quantisation_block = static_cast<uint16_t>(below(40));
    }
    put(at, v);
    return true;
  }

  bool dimension() {
    const auto entry = section(bytes_, size_, format::kDimensions);
    if (!entry || entry->size < 24) return false;
    const auto count = static_cast<uint32_t>((entry->size - 8) / sizeof(format::Dimension));
    uint8_t* at = bytes_ + entry->offset + 8 + uint64_t{below(count)} * sizeof(format::Dimension);
    auto d = get<format::Dimension>(at);
    if (d.op == format::kNumber && below(4) != 0) {
      d.b = number(d.b) & 0xFFFF;
    } else {
      d.op = below(10);
      d.a = below(count);
      d.b = below(count);
    }
    put(at, d);
    return true;
  }

  // Small constants are shapes, axes, indices, scales: one element becomes an odd number.
  bool constant() {
    const auto weights = section(bytes_, size_, format::kWeights);
    if (!weights) return false;
    for (int k = 0; k < 8; ++k) {
      const auto v = get<format::Value>(values_ + uint64_t{below(n_values_)} * sizeof(format::Value));
      if ((v.flags & format::kValueConstant) == 0 || v.size == 0 || v.size > 4096) continue;
      if (v.offset > weights->size || v.size > weights->size - v.offset) continue;
      uint8_t* data = bytes_ + weights->offset + v.offset;
      const bool longs = v.dtype == 7 && v.size >= 8, words = (v.dtype == 6 || v.dtype == 1) && v.size >= 4;
      uint8_t* at = data + below(static_cast<uint32_t>(v.size) / (longs   ? 8
                                                                  : words ? 4
                                                                          : 1)) *
                               (longs   ? 8
                                : words ? 4
                                        : 1);
      if (longs) {
        put(at, number(get<int64_t>(at)));
      } else if (words && v.dtype == 6) {
        put(at, static_cast<int32_t>(number(get<int32_t>(at))));
      } else if (words) {
        put(at, real());
      } else {
        *at = static_cast<uint8_t>(below(v.dtype == 9 ? 2 : 256));
      }
      return true;
    }
    return false;
  }

  // A node becomes another operator or version, or gets fewer inputs or outputs.
  bool node() {
    if (head_.nodes == 0) return false;
    uint8_t* at = nodes_ + uint64_t{below(head_.nodes)} * sizeof(format::Node);
    auto n = get<format::Node>(at);
    const auto other = get<format::Node>(nodes_ + uint64_t{below(head_.nodes)} * sizeof n);
    switch (below(5)) {
      case 0:
        n.since_version = 1 + below(26);
        break;
      case 1:
        n.inputs = below(n.inputs + 1);
        break;
      case 2:
        n.outputs = below(n.outputs + 1);
        break;
      case 3:
        n.attributes = below(n.attributes + 1);
        break;
      default:
        n.domain = other.domain;
        n.op = other.op;
        n.since_version = other.since_version;
    }
    put(at, n);
    return true;
  }

  uint8_t* bytes_;
  size_t size_;
  std::minstd_rand random_;
  format::ProgramHead head_ = {};
  uint32_t n_values_ = 0;
  uint8_t *nodes_ = nullptr, *attributes_ = nullptr, *integers_ = nullptr, *ids_ = nullptr,
          *floats_ = nullptr, *values_ = nullptr;
};

}  // namespace opforge::test
