// dynamic_values.cpp: sequences and optionals. A sequence that nobody else reads is changed in place, so that
// a loop which appends to one takes constant time per iteration.
#include <algorithm>
#include <cstring>

#include "session/dynamic.h"
#include "session/planner.h"

namespace opforge::session {
namespace {

// Bytes below one index of an axis, and how often that axis begins anew.
struct Strides {
  int64_t outer = 1, inner = 1;  // inner in bytes per index
};

Strides strides_of(const Tensor& tensor, int axis) {
  Strides s;
  for (int k = 0; k < axis; ++k) s.outer *= tensor.shape.dims[k];
  for (int k = axis + 1; k < tensor.shape.rank; ++k) s.inner *= tensor.shape.dims[k];
  s.inner *= dtype_bits(tensor.dtype) / 8;
  return s;
}

int64_t integer(const Tensor& tensor, int64_t k) {
  return tensor.dtype == DType::kI32 ? tensor.as<int32_t>()[k] : tensor.as<int64_t>()[k];
}

}  // namespace

Status DynamicRun::value_node(uint32_t n) {
  const NodeInfo& info = model_.node(n);
  const int32_t in = info.record->inputs > 0 ? info.inputs[0] : -1;
  const int32_t out = info.outputs[0];
  switch (info.control) {
    case Control::kSequenceEmpty:
    case Control::kSequenceConstruct: {
      auto made = std::make_shared<Sequence>();
      for (uint32_t k = 0; k < info.record->inputs; ++k)
        made->items.push_back(static_cast<const Item&>(slots_[info.inputs[k]]));
      return give(n, std::move(made));
    }
    case Control::kSequenceInsert:
      return insert(n);
    case Control::kSequenceErase:
      return erase(n);
    case Control::kSequenceAt:
      return at(n);
    case Control::kSequenceLength:
      return scalar_result(n, static_cast<int64_t>(slots_[in].sequence->items.size()));
    case Control::kSplitToSequence:
      return split(n);
    case Control::kConcatFromSequence:
      return concat(n);
    case Control::kOptionalHasElement:
      return scalar_result(n, in >= 0 && !slots_[in].empty());
    case Control::kOptional:
      if (in < 0) {
        slots_[out] = Slot();
        return OPFORGE_STATUS_OK;
      }
      return assign(n, out, take(n, in));
    default:  // Identity, OptionalGetElement
      return assign(n, out, take(n, in));
  }
}

Status DynamicRun::scalar_result(uint32_t n, int64_t number) {
  const int32_t out = model_.node(n).outputs[0];
  Slot& slot = slots_[out];
  slot.tensor = declared(model_, out);
  slot.tensor.shape.rank = 0;
  if (allocate(&slot)) return *error_;
  if (slot.tensor.dtype == DType::kBool)
    *slot.tensor.as<uint8_t>() = number != 0;
  else
    *slot.tensor.as<int64_t>() = number;
  return OPFORGE_STATUS_OK;
}

// Reads a position and brings it into [0, size); a negative one counts from the end.
Status DynamicRun::position(uint32_t n, int32_t value, int64_t size, int64_t* position) {
  const Tensor& tensor = slots_[value].tensor;
  if (tensor.data == nullptr || tensor.shape.elements() != 1)
    return fail(n, OPFORGE_STATUS_INVALID_ARGUMENT, "a position is not one number");
  const int64_t given = integer(tensor, 0), length = static_cast<int64_t>(size);
  *position = given < 0 ? given + length : given;
  if (*position >= 0 && *position < length) return OPFORGE_STATUS_OK;
  return fail(n, OPFORGE_STATUS_INVALID_ARGUMENT, "a position lies outside of the sequence")
      .wanted("at least %lld and below %lld", static_cast<long long>(-length), static_cast<long long>(length))
      .found("%lld", static_cast<long long>(given));
}

// The sequence of an input to be changed: itself where nobody else has it, else a copy of the list.
std::shared_ptr<Sequence> DynamicRun::take_sequence(uint32_t n, uint32_t input) {
  std::shared_ptr<Sequence> sequence = std::move(take(n, model_.node(n).inputs[input]).sequence);
  if (sequence.use_count() == 1) return sequence;
  return std::make_shared<Sequence>(*sequence);
}

// Makes a sequence the node's result, and charges its list.
Status DynamicRun::give(uint32_t n, std::shared_ptr<Sequence> sequence) {
  const auto bytes = static_cast<int64_t>(sequence->items.size() * sizeof(Item));
  pool_.charge(bytes - sequence->charged);
  sequence->pool = &pool_;
  sequence->charged = bytes;
  if (!model_.affordable(pool_.live_bytes())) {
    return fail(n, OPFORGE_STATUS_OUT_OF_MEMORY,
                "the values of a run take more memory than the session allows")
        .found("a sequence of %zu tensors", sequence->items.size());
  }
  slots_[model_.node(n).outputs[0]].sequence = std::move(sequence);
  return OPFORGE_STATUS_OK;
}

Status DynamicRun::insert(uint32_t n) {
  const NodeInfo& info = model_.node(n);
  const auto size = static_cast<int64_t>(slots_[info.inputs[0]].sequence->items.size());
  int64_t where = size;
  if (info.record->inputs > 2 && info.inputs[2] >= 0) {
    // The end is a place to insert at, too: for positions from the front it is one more.
    const Tensor& given = slots_[info.inputs[2]].tensor;
    const bool front = given.data != nullptr && given.shape.elements() == 1 && integer(given, 0) == size;
    if (!front && position(n, info.inputs[2], size, &where)) return *error_;
  }
  Item item = slots_[info.inputs[1]];
  std::shared_ptr<Sequence> sequence = take_sequence(n, 0);
  sequence->items.insert(sequence->items.begin() + where, std::move(item));
  return give(n, std::move(sequence));
}

Status DynamicRun::erase(uint32_t n) {
  const NodeInfo& info = model_.node(n);
  const auto size = static_cast<int64_t>(slots_[info.inputs[0]].sequence->items.size());
  int64_t where = size - 1;
  if (size == 0) return fail(n, OPFORGE_STATUS_INVALID_ARGUMENT, "an empty sequence has nothing to erase");
  if (info.record->inputs > 1 && info.inputs[1] >= 0 && position(n, info.inputs[1], size, &where))
    return *error_;
  std::shared_ptr<Sequence> sequence = take_sequence(n, 0);
  sequence->items.erase(sequence->items.begin() + where);
  return give(n, std::move(sequence));
}

Status DynamicRun::at(uint32_t n) {
  const NodeInfo& info = model_.node(n);
  const std::vector<Item>& items = slots_[info.inputs[0]].sequence->items;
  int64_t where = 0;
  if (position(n, info.inputs[1], static_cast<int64_t>(items.size()), &where)) return *error_;
  static_cast<Item&>(slots_[info.outputs[0]]) = items[static_cast<size_t>(where)];
  return OPFORGE_STATUS_OK;
}

Status DynamicRun::split(uint32_t n) {
  const NodeInfo& info = model_.node(n);
  const Tensor source = slots_[info.inputs[0]].tensor;
  const int rank = source.shape.rank;
  int64_t axis = info.attributes.get_int("axis", 0);
  axis += axis < 0 ? rank : 0;
  if (axis < 0 || axis >= rank || dtype_bits(source.dtype) % 8 != 0) {
    return fail(n, OPFORGE_STATUS_INVALID_ARGUMENT, "a tensor cannot be split along this axis")
        .wanted("a tensor of whole bytes with more than %lld dimensions", static_cast<long long>(axis))
        .found("%d dimensions", rank);
  }
  const int64_t total = source.shape.dims[axis];
  const int32_t parts = info.record->inputs > 1 ? info.inputs[1] : -1;
  const Tensor sizes = parts < 0 ? Tensor() : slots_[parts].tensor;
  const bool keep = parts >= 0 || info.attributes.get_int("keepdims", 1) != 0;
  const bool listed = parts >= 0 && sizes.shape.rank == 1;
  const int64_t chunk = parts < 0 ? 1 : listed ? 0 : sizes.shape.elements() == 1 ? integer(sizes, 0) : -1;
  if (parts >= 0 && (sizes.shape.rank > 1 || (!listed && chunk < 1)))
    return fail(n, OPFORGE_STATUS_INVALID_ARGUMENT,
                "the parts of a split are not a positive number or a list");
  const Strides strides = strides_of(source, static_cast<int>(axis));
  auto made = std::make_shared<Sequence>();
  int64_t begin = 0, index = 0;
  const int64_t count = listed       ? sizes.shape.elements()
                        : chunk == 0 ? 0
                                     : total / chunk + (total % chunk != 0);
  for (; index < count; ++index) {
    const int64_t length = listed ? integer(sizes, index) : std::min(chunk, total - begin);
    if (length < 0 || length > total - begin) break;
    Slot part;
    part.tensor = source;
    part.tensor.packing = Packing::kNone;
    part.tensor.shape.dims[axis] = length;
    if (allocate(&part)) return *error_;
    const auto bytes = static_cast<size_t>(length * strides.inner);
    for (int64_t o = 0; o < strides.outer && bytes != 0; ++o) {
      std::memcpy(part.tensor.as<char>() + static_cast<size_t>(o) * bytes,
                  source.as<const char>() + (o * total + begin) * strides.inner, bytes);
    }
    if (!keep) {
      Shape& shape = part.tensor.shape;
      for (int k = static_cast<int>(axis); k + 1 < rank; ++k) shape.dims[k] = shape.dims[k + 1];
      --shape.rank;
    }
    made->items.push_back(std::move(static_cast<Item&>(part)));
    begin += length;
  }
  if (index != count || begin != total) {
    return fail(n, OPFORGE_STATUS_INVALID_ARGUMENT, "the parts of a split are not those of the axis")
        .wanted("parts that add up to %lld", static_cast<long long>(total))
        .found("%lld after %lld parts", static_cast<long long>(begin), static_cast<long long>(index));
  }
  return give(n, std::move(made));
}

Status DynamicRun::concat(uint32_t n) {
  const NodeInfo& info = model_.node(n);
  const std::vector<Item>& items = slots_[info.inputs[0]].sequence->items;
  const bool stack = info.attributes.get_int("new_axis", 0) != 0;
  if (items.empty()) return fail(n, OPFORGE_STATUS_INVALID_ARGUMENT, "an empty sequence has nothing to join");
  Slot result;
  result.tensor = items[0].tensor;
  Shape& shape = result.tensor.shape;
  int64_t axis = info.attributes.get_int("axis", 0);
  axis += axis < 0 ? shape.rank + (stack ? 1 : 0) : 0;
  if (axis < 0 || axis >= shape.rank + (stack ? 1 : 0) || shape.rank + (stack ? 1 : 0) > kMaxRank ||
      dtype_bits(result.tensor.dtype) % 8 != 0) {
    return fail(n, OPFORGE_STATUS_INVALID_ARGUMENT,
                "the tensors of a sequence cannot be joined along this axis")
        .found("axis %lld of tensors with %d dimensions", static_cast<long long>(axis), shape.rank);
  }
  if (stack) {
    for (int k = shape.rank; k > axis; --k) shape.dims[k] = shape.dims[k - 1];
    shape.dims[axis] = 1;
    ++shape.rank;
  }
  const Shape first = shape;
  int64_t total = 0;
  for (const Item& item : items) {
    Shape one = item.tensor.shape;
    if (stack && one.rank + 1 == first.rank) {
      for (int k = one.rank; k > axis; --k) one.dims[k] = one.dims[k - 1];
      one.dims[axis] = 1;
      ++one.rank;
    } else if (stack) {
      one.rank = -1;
    }
    const int64_t length = one.rank == first.rank ? one.dims[axis] : -1;
    if (length >= 0) one.dims[axis] = first.dims[axis];
    if (!same_shape(one, first)) {
      return fail(n, OPFORGE_STATUS_INVALID_ARGUMENT, "the tensors of a sequence do not fit together")
          .wanted("equal shapes but for axis %lld", static_cast<long long>(axis));
    }
    if (__builtin_add_overflow(total, length, &total)) total = INT64_MAX;
  }
  shape.dims[axis] = total;
  if (!good_shape(result.tensor.dtype, shape, Layout()))
    return fail(n, OPFORGE_STATUS_OUT_OF_MEMORY, "a joined sequence has an impossible size");
  if (allocate(&result)) return *error_;
  const Strides strides = strides_of(result.tensor, static_cast<int>(axis));
  int64_t begin = 0;
  for (const Item& item : items) {
    const int64_t length = stack ? 1 : item.tensor.shape.dims[axis];
    const auto bytes = static_cast<size_t>(length * strides.inner);
    for (int64_t o = 0; o < strides.outer && bytes != 0; ++o) {
      std::memcpy(result.tensor.as<char>() + (o * total + begin) * strides.inner,
                  item.tensor.as<const char>() + static_cast<size_t>(o) * bytes, bytes);
    }
    begin += length;
  }
  slots_[info.outputs[0]] = std::move(result);
  return OPFORGE_STATUS_OK;
}

}  // namespace opforge::session
