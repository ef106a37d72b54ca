// flexbuffer.h: reads the custom options of a node, which TensorFlow's converter and our own writer store as
// a FlexBuffer: a map from names to scalars, texts and lists. The bytes come from a file, so every place is
// checked before it is read.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "common/failure.h"
#include "opforge/detail/attributes.h"

namespace opforge::litert_host {

class FlexBuffer {
 public:
  FlexBuffer(const void* data, size_t size, std::string where)
      : data_(static_cast<const uint8_t*>(data)),
        size_(data == nullptr ? 0 : size),
        where_(std::move(where)) {}

  // The entries of the map; no bytes at all are an empty map.
  std::vector<detail::NamedLiteral> entries() const {
    std::vector<detail::NamedLiteral> found;
    if (size_ == 0) return found;
    require(size_ >= 3);
    const size_t width = data_[size_ - 1];
    require(is_width(width) && size_ >= 2 + width);
    const Place root{size_ - 2 - width, width, data_[size_ - 2]};
    if (type(root) != kMap) throw broken("a map of attributes", "type " + std::to_string(type(root)));
    const Vector values = vector(root);
    // In front of the size of a map lie the distance to its keys and their width.
    require(values.begin >= 3 * values.width);
    const size_t distance_at = values.begin - 3 * values.width;
    const size_t distance = number(distance_at, values.width);
    const size_t key_width = number(values.begin - 2 * values.width, values.width);
    require(is_width(key_width) && distance <= distance_at);
    const size_t keys = distance_at - distance;
    require(values.count <= (size_ - keys) / key_width);
    for (size_t k = 0; k < values.count; ++k) {
      detail::NamedLiteral entry;
      entry.name = key(target({keys + k * key_width, key_width, 0}));
      entry.value = literal(item(values, k));
      found.push_back(std::move(entry));
    }
    return found;
  }

 private:
  enum Type : int32_t {
    kNull,
    kInt,
    kUint,
    kFloat,
    kKey,
    kString,
    kIndirectInt,
    kIndirectUint,
    kIndirectFloat,
    kMap,
    kVector,
    kVectorInt,
    kVectorString = 15,
    kVectorInt2 = 16,
    kVectorFloat4 = 24,
    kBool = 26,
    kVectorBool = 36
  };
  struct Place {  // of a value: scalars lie here, of all else the distance to it
    size_t at, width;
    uint8_t packed;
  };
  struct Vector {
    size_t begin, width, count, types;  // types: place of the elements' packed types, 0 = all have `element`
    int32_t element;
  };

  adapter::Failure broken(const std::string& expected, const std::string& got) const {
    return adapter::failure(OPFORGE_STATUS_CORRUPT, where_, "the custom options of the node cannot be read",
                            expected, got, "write the model again");
  }
  void require(bool good) const {
    if (!good) throw broken("a FlexBuffer", std::to_string(size_) + " bytes that are none");
  }
  static bool is_width(size_t width) { return width == 1 || width == 2 || width == 4 || width == 8; }
  static int32_t type(const Place& place) { return place.packed >> 2; }
  static size_t width_of(uint8_t packed) { return size_t{1} << (packed & 3); }

  uint64_t number(size_t at, size_t width) const {
    require(at <= size_ && width <= size_ - at);
    uint64_t value = 0;  // little-endian, as the hosts that LiteRT runs on
    std::memcpy(&value, data_ + at, width);
    return value;
  }
  int64_t signed_number(size_t at, size_t width) const {
    const uint64_t value = number(at, width);
    const unsigned shift = static_cast<unsigned>(64 - 8 * width);
    return static_cast<int64_t>(value << shift) >> shift;
  }
  double real(size_t at, size_t width) const {
    require(width >= 4);
    const uint64_t bits = number(at, width);
    if (width == 8) {
      double value = 0;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return static_cast<double>(value);
  }
  size_t target(const Place& place) const {
    const uint64_t distance = number(place.at, place.width);
    require(distance <= place.at);
    return place.at - static_cast<size_t>(distance);
  }
  std::string key(size_t at) const {
    const void* const end = std::memchr(data_ + at, 0, size_ - at);
    require(end != nullptr);
    const auto* const text = reinterpret_cast<const char*>(data_ + at);
    return keep(text, static_cast<size_t>(static_cast<const char*>(end) - text));
  }
  // Many items may lead to one text, so a small buffer can ask for much memory.
  std::string keep(const char* text, size_t length) const {
    texts_ += length;
    require(texts_ <= kMostText);
    return std::string(text, length);
  }
  std::string text(const Place& place) const {
    const size_t at = target(place), width = width_of(place.packed);
    require(at >= width);
    const uint64_t length = number(at - width, width);
    require(length <= size_ - at);
    return keep(reinterpret_cast<const char*>(data_ + at), static_cast<size_t>(length));
  }
  Vector vector(const Place& place) const {
    const int32_t kind = type(place);
    Vector found{target(place), width_of(place.packed), 0, 0, 0};
    if (kind >= kVectorInt2 && kind <= kVectorFloat4) {
      found.count = static_cast<size_t>((kind - kVectorInt2) / 3 + 2);
      found.element = (kind - kVectorInt2) % 3 + kInt;
    } else {
      require(found.begin >= found.width);
      const uint64_t count = number(found.begin - found.width, found.width);
      require(count <= size_);
      found.count = static_cast<size_t>(count);
      // A vector of texts does not tell the width of their lengths, so they end at a zero, as keys do.
      if (kind == kVectorBool) found.element = kBool;
      if (kind == kVectorString) found.element = kKey;
      if (kind >= kVectorInt && kind < kVectorString) found.element = kind - kVectorInt + kInt;
    }
    require(found.count <= (size_ - found.begin) / found.width);
    if (kind == kVector || kind == kMap) {
      found.types = found.begin + found.count * found.width;
      require(found.count <= size_ - found.types);
    }
    return found;
  }
  Place item(const Vector& from, size_t k) const {
    const auto plain = static_cast<uint8_t>(from.element << 2);
    return {from.begin + k * from.width, from.width, from.types != 0 ? data_[from.types + k] : plain};
  }
  detail::Scalar scalar(const Place& place) const {
    switch (type(place)) {
      case kInt:
        return {OPFORGE_ATTRIBUTE_INT, signed_number(place.at, place.width), 0, {}};
      case kUint:
        return {OPFORGE_ATTRIBUTE_INT, static_cast<int64_t>(number(place.at, place.width)), 0, {}};
      case kFloat:
        return {OPFORGE_ATTRIBUTE_FLOAT, 0, real(place.at, place.width), {}};
      case kBool:
        return {OPFORGE_ATTRIBUTE_BOOL, number(place.at, place.width) != 0 ? 1 : 0, 0, {}};
      case kIndirectInt:
        return {OPFORGE_ATTRIBUTE_INT, signed_number(target(place), width_of(place.packed)), 0, {}};
      case kIndirectUint: {
        const uint64_t value = number(target(place), width_of(place.packed));
        return {OPFORGE_ATTRIBUTE_INT, static_cast<int64_t>(value), 0, {}};
      }
      case kIndirectFloat:
        return {OPFORGE_ATTRIBUTE_FLOAT, 0, real(target(place), width_of(place.packed)), {}};
      case kString:
        return {OPFORGE_ATTRIBUTE_STRING, 0, 0, text(place)};
      case kKey:
        return {OPFORGE_ATTRIBUTE_STRING, 0, 0, key(target(place))};
      default:
        throw broken("a number, a text, or a list of them", "type " + std::to_string(type(place)));
    }
  }
  detail::Literal literal(const Place& place) const {
    const int32_t kind = type(place);
    detail::Literal value;
    value.list = kind == kVector || (kind >= kVectorInt && kind <= kVectorString) ||
                 (kind >= kVectorInt2 && kind <= kVectorFloat4) || kind == kVectorBool;
    if (!value.list) {
      value.items.push_back(scalar(place));
      return value;
    }
    const Vector items = vector(place);
    // Items have bytes of their own, so more than there are bytes are one list that is led to again and
    // again.
    items_ += items.count;
    require(items_ <= size_);
    for (size_t k = 0; k < items.count; ++k) value.items.push_back(scalar(item(items, k)));
    return value;
  }

  static constexpr size_t kMostText = size_t{1} << 24;

  const uint8_t* data_;
  size_t size_;
  std::string where_;
  mutable size_t texts_ = 0, items_ = 0;
};

}  // namespace opforge::litert_host
