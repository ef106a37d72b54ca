// dynamic_control.cpp: If and Loop. check_executor_node has proven how their graphs fit.
#include <algorithm>
#include <cstring>

#include "session/dynamic.h"
#include "session/planner.h"

namespace opforge::session {
namespace {

constexpr int64_t kFirstRows = int64_t{4} << 20;  // bytes that a scan output of known length takes at once
constexpr int64_t kFirstTrips = 16;               // rows that one of unknown length begins with

}  // namespace

// Reads a condition or a count.
Status DynamicRun::truth(uint32_t n, int32_t value, int64_t* number) {
  const Tensor& tensor = slots_[value].tensor;
  if (tensor.data == nullptr || tensor.shape.elements() != 1) {
    return fail(n, OPFORGE_STATUS_INVALID_ARGUMENT, "a condition or count is not one number")
        .wanted("a tensor of one element")
        .found("%lld elements", static_cast<long long>(tensor.shape.elements()));
  }
  *number =
      tensor.dtype == DType::kBool ? static_cast<int64_t>(*tensor.as<uint8_t>() != 0) : *tensor.as<int64_t>();
  return OPFORGE_STATUS_OK;
}

// Gives a value what another one holds.
Status DynamicRun::assign(uint32_t n, int32_t value, const Slot& slot) {
  if (slot.empty() && !is_optional(program_.values[value])) {
    return fail(n, OPFORGE_STATUS_INVALID_ARGUMENT,
                "an optional that is empty is given where a value is needed")
        .found("value '%s'", model_.text(program_.values[value].name).c_str());
  }
  if (&slots_[value] != &slot) slots_[value] = slot;
  return OPFORGE_STATUS_OK;
}

Status DynamicRun::if_node(uint32_t n) {
  const NodeInfo& info = model_.node(n);
  int64_t condition = 0;
  if (truth(n, info.inputs[0], &condition)) return *error_;
  const auto g =
      static_cast<uint32_t>(info.attributes.get_graph(condition != 0 ? "then_branch" : "else_branch"));
  if (graph(g)) return *error_;
  const format::Graph& chosen = program_.graphs[g];
  const int32_t* outs = program_.ids + chosen.first_output;
  for (uint32_t k = 0; k < info.record->outputs; ++k) {
    const auto from = static_cast<uint32_t>(outs[k]);
    if (info.outputs[k] < 0) continue;
    if (program_.is_constant(from) && model_.check_constant(from, error_)) return *error_;
    if (assign(n, info.outputs[k], slots_[from])) return *error_;
  }
  for (uint32_t k = 0; k < chosen.outputs; ++k) {
    const auto from = static_cast<uint32_t>(outs[k]);
    if (!program_.is_constant(from) && model_.graph_of(from) == g) slots_[from] = Slot();
  }
  return OPFORGE_STATUS_OK;
}

Status DynamicRun::loop_limit(uint32_t n, int64_t trip) {
  const int64_t limit = model_.options().loop_limit;
  if (limit == 0 || trip < limit) return OPFORGE_STATUS_OK;
  return fail(n, OPFORGE_STATUS_UNSUPPORTED, "a Loop runs more often than the session allows")
      .wanted("at most %lld iterations", static_cast<long long>(limit));
}

Status DynamicRun::loop_node(uint32_t n) {
  const NodeInfo& info = model_.node(n);
  const auto body = static_cast<uint32_t>(info.attributes.get_graph("body"));
  const format::Graph& record = program_.graphs[body];
  const int32_t *ins = program_.ids + record.first_input, *outs = program_.ids + record.first_output;
  const uint32_t outputs = info.record->outputs, carried = info.record->inputs - 2;
  int64_t trips = INT64_MAX, keep = 1;
  if (info.inputs[0] >= 0 && truth(n, info.inputs[0], &trips)) return *error_;
  if (info.inputs[1] >= 0 && truth(n, info.inputs[1], &keep)) return *error_;
  for (uint32_t k = 0; k < record.outputs; ++k) {
    const auto id = static_cast<uint32_t>(outs[k]);
    if (program_.is_constant(id) && model_.check_constant(id, error_)) return *error_;
  }
  const int32_t* captures = program_.ids + record.first_capture;
  std::vector<Slot> state(carried);
  for (uint32_t k = 0; k < carried; ++k) {
    const int32_t id = info.inputs[2 + k];
    if (id < 0) continue;
    const bool once = std::count(info.inputs, info.inputs + info.record->inputs, id) == 1 &&
                      std::find(captures, captures + record.captures, id) == captures + record.captures;
    state[k] = once ? take(n, id) : slots_[id];
  }
  std::vector<Stack> stacks(outputs - carried);
  Slot counter, going;
  counter.tensor = declared(model_, ins[0]);
  going.tensor = declared(model_, ins[1]);
  counter.tensor.shape.rank = going.tensor.shape.rank = 0;
  for (int64_t trip = 0; trip < trips && keep != 0; ++trip) {
    if (loop_limit(n, trip)) return *error_;
    // The body may keep these beyond the iteration: then the next one gets memory of its own.
    if (!counter.memory.alone() && allocate(&counter)) return *error_;
    if (!going.memory.alone() && allocate(&going)) return *error_;
    *counter.tensor.as<int64_t>() = trip;
    *going.tensor.as<uint8_t>() = 1;
    slots_[ins[0]] = counter;
    slots_[ins[1]] = going;
    for (uint32_t k = 0; k < carried; ++k) {
      if (state[k].empty() && !is_optional(program_.values[ins[2 + k]]))
        return assign(n, ins[2 + k], state[k]);
      slots_[ins[2 + k]] = std::move(state[k]);
    }
    if (graph(body)) return *error_;
    if (truth(n, outs[0], &keep)) return *error_;
    for (uint32_t k = 0; k < outputs; ++k) {
      const Slot& result = slots_[outs[1 + k]];
      if (k < carried)
        state[k] = result;
      else if (push(n, result, trips == INT64_MAX ? std::max(kFirstTrips, trip) : trips - trip,
                    &stacks[k - carried]))
        return *error_;
    }
    for (uint32_t k = 0; k < record.outputs; ++k) {
      const auto id = static_cast<uint32_t>(outs[k]);
      if (!program_.is_constant(id) && model_.graph_of(id) == body) slots_[id] = Slot();
    }
    for (uint32_t k = 0; k < record.inputs; ++k) slots_[ins[k]] = Slot();
  }
  for (uint32_t k = 0; k < outputs; ++k) {
    if (info.outputs[k] < 0) continue;
    if (k < carried ? assign(n, info.outputs[k], state[k]) : finish(n, info.outputs[k], &stacks[k - carried]))
      return *error_;
  }
  return OPFORGE_STATUS_OK;
}

// Adds a row; the memory doubles, or is there at once when the loop says how many rows will come.
Status DynamicRun::push(uint32_t n, const Slot& row, int64_t expected, Stack* stack) {
  const Tensor& tensor = row.tensor;
  if (stack->count == 0) {
    stack->row = tensor.shape;
    stack->bytes = bytes_of(tensor);
    const int64_t bits = tensor.shape.elements() * dtype_bits(tensor.dtype);
    if (tensor.shape.rank >= kMaxRank || bits % 8 != 0) {
      return fail(n, OPFORGE_STATUS_UNSUPPORTED,
                  "a scan output has too many dimensions, or rows of odd nibbles")
          .wanted("rows of at most %d dimensions and whole bytes", kMaxRank - 1);
    }
  }
  if (!same_shape(stack->row, tensor.shape)) {
    return fail(n, OPFORGE_STATUS_INVALID_ARGUMENT,
                "the iterations of a Loop give scan outputs of different shapes")
        .found("iteration %lld", static_cast<long long>(stack->count));
  }
  Slot& rows = stack->rows;
  const int64_t used = stack->count * stack->bytes;
  if (stack->bytes > 0 && (!rows.memory || used + stack->bytes > rows.memory.bytes())) {
    int64_t wanted = 0;
    if (__builtin_mul_overflow(expected, stack->bytes, &wanted)) wanted = INT64_MAX;
    wanted = std::max(std::min(wanted, std::max(kFirstRows, used)), stack->bytes) + used;
    BlockRef larger;
    if (allocate_bytes(wanted, &larger)) return *error_;
    if (used > 0) std::memcpy(larger.data(), rows.memory.data(), static_cast<size_t>(used));
    rows.memory = std::move(larger);
  }
  if (stack->bytes > 0) {
    std::memcpy(static_cast<char*>(rows.memory.data()) + used, tensor.data,
                static_cast<size_t>(stack->bytes));
  }
  ++stack->count;
  return OPFORGE_STATUS_OK;
}

Status DynamicRun::finish(uint32_t n, int32_t value, Stack* stack) {
  Slot& slot = slots_[value];
  slot = Slot();
  slot.tensor = declared(model_, value);
  Shape& shape = slot.tensor.shape;
  if (stack->count == 0) {
    known_dimensions(value, &shape);
  } else {
    shape.rank = stack->row.rank + 1;
    std::copy(stack->row.dims, stack->row.dims + stack->row.rank, shape.dims + 1);
  }
  shape.dims[0] = stack->count;
  if (!good_shape(slot.tensor.dtype, shape, Layout()))
    return fail(n, OPFORGE_STATUS_OUT_OF_MEMORY, "a scan output has an impossible size");
  if (!stack->rows.memory) return allocate(&slot);
  slot.memory = std::move(stack->rows.memory);
  slot.tensor.data = slot.memory.data();
  return OPFORGE_STATUS_OK;
}

// The shape that the file gives a scan output without rows: dimensions that the model's inputs decide are
// known, others are 0.
void DynamicRun::known_dimensions(int32_t value, Shape* shape) const {
  std::vector<int64_t> symbols(program_.n_strings, -1);
  const format::Graph& main = program_.graphs[0];
  for (uint32_t k = 0; k < main.inputs; ++k) {
    const auto id = static_cast<uint32_t>(program_.ids[main.first_input + k]);
    const format::Value& v = program_.values[id];
    const Shape& given = input_shapes_[k];
    for (int d = 0; v.kind == format::kTensorValue && d < v.rank && d < given.rank; ++d) {
      const format::Dimension& dim =
          program_.dimensions[program_.dimension_ids[v.first_dimension + static_cast<uint32_t>(d)]];
      if (dim.op == format::kSymbol) symbols[dim.a] = given.dims[d];
    }
  }
  const format::Value& v = program_.values[value];
  shape->rank = std::max<int32_t>(1, v.rank);
  shape->dims[0] = 0;
  for (int d = 1; d < v.rank; ++d) {
    const uint32_t id = program_.dimension_ids[v.first_dimension + static_cast<uint32_t>(d)];
    shape->dims[d] = std::max<int64_t>(0, evaluate_dimension(program_, id, symbols.data()));
  }
}

}  // namespace opforge::session
