// space.h: from the tensors of a call to what a kernel is passed: broadcast sizes, strides, and as few
// dimensions as possible. Plain C++, on the host.
#pragma once

#include <stdint.h>
#ifndef __CUDACC_RTC__  // which compiles what kernels are passed, not how it is made
#include <stdio.h>
#endif

#include "opforge/abi.h"
#include "opforge/cuda/grid.h"

namespace opforge {
namespace cuda {

constexpr int kRank = 12;      // dimensions of a call; more are refused
constexpr int kOperands = 24;  // inputs and outputs
constexpr int kAttributes = 16;
constexpr int64_t kMostParts = 1024;

constexpr int most(int largest) { return largest; }
template <class... Rest>
constexpr int most(int largest, int next, Rest... rest) {
  return most(largest < next ? next : largest, rest...);
}

struct FormulaShape {
  int n_inputs, n_attributes, n_outputs;
  const opforge_dtype *input_dtypes, *output_dtypes;
  const int* sum_to;  // per output: the input whose shape it is summed to, -1 = the broadcast shape
};

// How a sum is cut: `count` parts of `length` for each of `elements`, of which each is the sum of `summed`;
// the first `kept` dimensions are not summed. `lanes` threads share a part, so that a block has as many parts
// at once as fit: neighbours in a warp take neighbours of one part where `along` is not 0, else the same
// place of neighbouring elements, whichever lie side by side in memory. `together` threads add up an
// element's parts.
struct Parts {
  int kept, lanes, along, together;
  int64_t elements, summed, count, length;

  // Parts that a block has at once.
  int groups() const { return kThreads / lanes; }
};

// Threads that share `terms` terms where the same terms of `beside` sums lie side by side: a power of two.
inline int lanes_of(int64_t terms, int64_t beside) {
  constexpr int kTerms = 4, kBeside = 32;  // terms of a thread at least; sums that a warp takes at most
  int lanes = kThreads, sums = 1;
  while (sums < beside && sums < kBeside) sums *= 2, lanes /= 2;
  while (lanes > 1 && lanes / 2 * kTerms >= terms) lanes /= 2;
  return lanes;
}

struct Space {
  int rank;
  int64_t size[kRank], total;
  char* data[kOperands];             // inputs, then outputs; NULL: an output that nobody wants
  int64_t stride[kOperands][kRank];  // elements; 0 where the operand is broadcast or summed
  double real[kAttributes];
  int64_t integer[kAttributes];
  uint32_t wanted;         // outputs
  uint32_t summed[kRank];  // outputs that are summed over the dimension
  uint32_t alignment;      // bytes, of all operands
  bool dense;              // one dimension in which every operand steps by 0 or 1
  bool small;              // elements and offsets fit 32 bits

  uint32_t summed_outputs() const {
    uint32_t all = 0;
    for (int d = 0; d < rank; ++d) all |= summed[d];
    return all & wanted;
  }

  // Elements that the call computes: 0 where nothing is to be launched. Sums of nothing are zeros, and are
  // computed.
  int64_t work() const {
    const uint32_t sums = summed_outputs();
    if ((wanted & ~sums) != 0 && total > 0) return total;
    for (int which = 0; which < kOperands; ++which) {
      int64_t kept = (sums >> which & 1u) != 0 ? 1 : 0;
      for (int d = 0; d < rank; ++d) kept *= (summed[d] >> which & 1u) != 0 ? 1 : size[d];
      if (kept > 0) return kept;
    }
    return 0;
  }

  bool takes_part(int operand, int n_inputs, uint32_t outputs) const {
    return operand < n_inputs || (outputs >> (operand - n_inputs) & 1u) != 0;
  }

  // Takes dimension d of `from` behind the `made` that are there, or into the last of them, not before
  // `first`, where every operand of the given outputs runs through both evenly. One element is no dimension.
  void append(const Space& from, int d, int first, int* made, uint32_t outputs, int n_inputs, int n_outputs) {
    if (from.size[d] == 1) return;
    const int operands = n_inputs + n_outputs;
    bool joins = *made > first;
    for (int o = 0; joins && o < operands; ++o)
      joins = !takes_part(o, n_inputs, outputs) || stride[o][*made - 1] == from.stride[o][d] * from.size[d];
    if (!joins) ++*made;
    for (int o = 0; o < operands; ++o) stride[o][*made - 1] = from.stride[o][d];
    size[*made - 1] = joins ? size[*made - 1] * from.size[d] : from.size[d];
  }

  // Drops dimensions of one element and joins neighbours that every operand of the given outputs runs through
  // evenly.
  void collapse(uint32_t outputs, int n_inputs, int n_outputs) {
    int made = 0;
    for (int d = 0; d < rank; ++d) append(*this, d, 0, &made, outputs, n_inputs, n_outputs);
    if (made == 0) {
      made = 1;
      size[0] = 1;
      for (int o = 0; o < n_inputs + n_outputs; ++o) stride[o][0] = 1;
    }
    rank = made;
    dense = rank == 1;
    for (int o = 0; dense && o < n_inputs + n_outputs; ++o)
      dense = !takes_part(o, n_inputs, outputs) || stride[o][0] == 1 || (o < n_inputs && stride[o][0] == 0);
  }

  // Brings the dimensions over which output `which` is summed behind the others. How the sum is cut follows
  // from sizes alone, so that its bits do too.
  Parts sort_for_sum(int which, int n_inputs, int n_outputs) {
    // What a thread adds up by itself: little where that is what keeps the device busy.
    constexpr int64_t kFew = 64, kMany = 512, kBusy = 1 << 19;
    Space sorted = *this;
    Parts parts = {0, 1, 0, 1, 1, 1, 1, 1};
    int64_t beside = 1;  // elements that follow each other in a dense tensor
    for (int d = 0; d < rank; ++d) {
      const bool is_summed = (summed[d] >> which & 1u) != 0;
      if (size[d] != 1) parts.along = is_summed ? 1 : 0;
      (is_summed ? parts.summed : parts.elements) *= size[d];
      beside = is_summed ? 1 : beside * size[d];
    }
    int made = 0;
    for (int pass = 0; pass < 2; ++pass) {
      for (int d = 0; d < rank; ++d) {
        const bool is_summed = (summed[d] >> which & 1u) != 0;
        if (is_summed == (pass == 1))
          sorted.append(*this, d, parts.kept, &made, 1u << which, n_inputs, n_outputs);
      }
      if (pass == 0) parts.kept = made;
    }
    sorted.rank = made;
    *this = sorted;
    parts.lanes = lanes_of(parts.summed, parts.along != 0 ? 1 : beside);
    const bool busy = parts.elements >= kBusy / parts.lanes;
    const int64_t longest = (busy ? kMany : kFew) * parts.lanes;
    parts.count = (parts.summed + longest - 1) / longest;
    if (parts.count > kMostParts) parts.count = kMostParts;
    if (parts.count < 1) parts.count = 1;
    parts.length = (parts.summed + parts.count - 1) / parts.count;
    parts.together = lanes_of(parts.count, parts.elements);
    return parts;
  }
};

// They go from one compiler's code to another's.
static_assert(sizeof(Space) == 2928 && alignof(Space) == 8 && sizeof(Parts) == 48 && alignof(Parts) == 8,
              "what kernels are passed is laid out alike on the host and the device");

#ifndef __CUDACC_RTC__
inline opforge_status refuse(char* reason, size_t room, opforge_status status, const char* what, int index,
                             const char* rest) {
  snprintf(reason, room, "%s %d %s", what, index, rest);
  return status;
}
inline bool same_dtype(opforge_dtype a, opforge_dtype b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

// Byte address and element strides of a tensor in the call's dimensions.
inline void place(const opforge_tensor& tensor, int operand, Space* space) {
  const int shift = space->rank - tensor.ndim;
  int64_t step = 1;
  for (int d = space->rank - 1; d >= 0; --d) {
    space->stride[operand][d] = 0;
    if (d < shift) continue;
    const int64_t size = tensor.shape[d - shift];
    if (size != 1) space->stride[operand][d] = tensor.strides != nullptr ? tensor.strides[d - shift] : step;
    step *= size;
    int64_t reach = space->stride[operand][d] * (size - 1);
    if (reach < 0) reach = -reach;
    if (reach > INT32_MAX) space->small = false;
  }
  space->data[operand] = static_cast<char*>(tensor.data) + (tensor.data != nullptr ? tensor.byte_offset : 0);
  const uint64_t address = reinterpret_cast<uintptr_t>(space->data[operand]);
  while (space->alignment > 1 && address % space->alignment != 0) space->alignment /= 2;
}

inline opforge_status bind(const FormulaShape& formula, const opforge_arguments* inputs,
                           const opforge_arguments* outputs, const opforge_attribute* attributes,
                           Space* space, char* reason, size_t room) {
  if (inputs->n_parameters != formula.n_inputs || outputs->n_parameters != formula.n_outputs ||
      inputs->n_tensors != formula.n_inputs)
    return refuse(reason, room, OPFORGE_STATUS_INVALID_ARGUMENT, "a formula operator takes each of its",
                  formula.n_inputs, "inputs once");
  if (formula.n_inputs + formula.n_outputs > kOperands || formula.n_attributes > kAttributes)
    return refuse(reason, room, OPFORGE_STATUS_UNSUPPORTED, "more than", kOperands, "operands");
  space->rank = 0;
  space->alignment = 16;
  space->small = true;
  space->dense = false;
  space->wanted = 0;
  for (int k = 0; k < formula.n_inputs; ++k) {
    const opforge_tensor& tensor = inputs->tensors[k];
    if (tensor.ndim < 0 || tensor.ndim > kRank)
      return refuse(reason, room, OPFORGE_STATUS_UNSUPPORTED, "input", k, "has more than 12 dimensions");
    if (!same_dtype(tensor.dtype, formula.input_dtypes[k]))
      return refuse(reason, room, OPFORGE_STATUS_TYPE, "input", k, "has a wrong dtype");
    if (tensor.ndim > space->rank) space->rank = tensor.ndim;
  }
  for (int d = 0; d < space->rank; ++d) space->size[d] = 1, space->summed[d] = 0;
  for (int k = 0; k < formula.n_inputs; ++k) {
    const opforge_tensor& tensor = inputs->tensors[k];
    for (int d = 0; d < tensor.ndim; ++d) {
      int64_t& size = space->size[d + space->rank - tensor.ndim];
      if (tensor.shape[d] == size || tensor.shape[d] == 1) continue;
      if (size != 1)
        return refuse(reason, room, OPFORGE_STATUS_INVALID_ARGUMENT, "input", k,
                      "cannot be broadcast with the others");
      size = tensor.shape[d];
    }
  }
  space->total = 1;
  for (int d = 0; d < space->rank; ++d) {
    if (__builtin_mul_overflow(space->total, space->size[d], &space->total))
      return refuse(reason, room, OPFORGE_STATUS_INVALID_ARGUMENT, "dimension", d,
                    "makes the result too large");
  }
  if (space->total > INT32_MAX) space->small = false;
  for (int k = 0; k < formula.n_inputs; ++k) place(inputs->tensors[k], k, space);
  for (int k = 0, next = 0; k < formula.n_outputs; ++k) {
    const int operand = formula.n_inputs + k, target = formula.sum_to[k];
    space->data[operand] = nullptr;
    for (int d = 0; d < space->rank; ++d) space->stride[operand][d] = 0;
    if (outputs->counts[k] == 0) continue;
    const opforge_tensor& tensor = outputs->tensors[next++];
    if (!same_dtype(tensor.dtype, formula.output_dtypes[k]))
      return refuse(reason, room, OPFORGE_STATUS_TYPE, "output", k, "has a wrong dtype");
    const int rank = target < 0 ? space->rank : inputs->tensors[target].ndim, shift = space->rank - rank;
    bool fits = tensor.ndim == rank;
    for (int d = 0; fits && d < rank; ++d)
      fits = tensor.shape[d] == (target < 0 ? space->size[d] : inputs->tensors[target].shape[d]);
    if (!fits) return refuse(reason, room, OPFORGE_STATUS_INVALID_ARGUMENT, "output", k, "has a wrong shape");
    place(tensor, operand, space);
    space->wanted |= 1u << k;
    for (int d = 0; target >= 0 && d < space->rank; ++d) {
      if (space->size[d] != 1 && (d < shift || tensor.shape[d - shift] == 1)) space->summed[d] |= 1u << k;
    }
  }
  for (int k = 0; k < formula.n_attributes; ++k) {
    const opforge_attribute& attribute = attributes[k];
    const bool is_float = attribute.kind == OPFORGE_ATTRIBUTE_FLOAT;
    space->real[k] = is_float ? attribute.value.f : static_cast<double>(attribute.value.i);
    space->integer[k] = is_float ? 0 : attribute.value.i;  // a float may be more than an integer can be
  }
  return OPFORGE_STATUS_OK;
}

#endif  // __CUDACC_RTC__

}  // namespace cuda
}  // namespace opforge
