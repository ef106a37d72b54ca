// pad.cpp: Pad with constant, edge, reflect and wrap; negative pads cut.
#include "kernels/move.h"

namespace opforge {
namespace {

using namespace kernels;

enum class Mode { kConstant, kEdge, kReflect, kWrap, kUnknown };

Mode mode_of(const Attributes& attributes) {
  const StringView mode = attributes.get_string("mode", "constant");
  return equals(mode, "constant")  ? Mode::kConstant
         : equals(mode, "edge")    ? Mode::kEdge
         : equals(mode, "reflect") ? Mode::kReflect
         : equals(mode, "wrap")    ? Mode::kWrap
                                   : Mode::kUnknown;
}

// begin and end of every dimension. missing: input whose values are not known.
bool read_pads(const Tensor* inputs, int32_t n_inputs, int64_t* begin, int64_t* end, int32_t* missing) {
  const int rank = inputs[0].shape.rank;
  int64_t pads[2 * kMaxRank], axes[kMaxRank], count = 0, n_axes = rank;
  *missing = -1;
  for (int k = 0; k < rank; ++k) begin[k] = end[k] = 0;
  for (int k = 0; k < rank; ++k) axes[k] = k;
  const bool has_axes = n_inputs > 3 && inputs[3].present();
  if (inputs[1].data == nullptr && inputs[1].shape.elements() != 0) *missing = 1;
  if (has_axes && inputs[3].data == nullptr && inputs[3].shape.elements() != 0) *missing = 3;
  if (*missing >= 0 || !read_values(inputs[1], pads, 2 * kMaxRank, &count)) return false;
  if (has_axes && !read_values(inputs[3], axes, kMaxRank, &n_axes)) return false;
  if (count != 2 * n_axes) return false;
  for (int64_t k = 0; k < n_axes; ++k) {
    const int axis = axis_of(axes[k], rank);
    if (axis < 0) return false;
    begin[axis] = pads[k];
    end[axis] = pads[n_axes + k];
  }
  return true;
}

Status pad_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  const Shape& in = c.inputs[0].shape;
  const Mode mode = mode_of(*c.attributes);
  int64_t begin[kMaxRank], end[kMaxRank];
  int32_t missing = -1;
  if (!read_pads(c.inputs, c.n_inputs, begin, end, &missing)) {
    return missing >= 0 ? c.need_data(missing)
                        : c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "pads or axes are not valid");
  }
  if (c.n_inputs > 2 && c.inputs[2].present() &&
      (c.inputs[2].dtype != c.inputs[0].dtype || c.inputs[2].shape.elements() != 1)) {
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the value is not one element of the input's dtype");
  }
  Shape& out = c.outputs[0].shape;
  out.rank = in.rank;
  for (int k = 0; k < in.rank; ++k) {
    const int64_t d = in.dims[k], limit = int64_t{1} << 40;
    bool good = mode != Mode::kUnknown && begin[k] > -limit && end[k] > -limit && begin[k] < limit &&
                end[k] < limit && d + begin[k] + end[k] >= 0;
    const bool grows = begin[k] > 0 || end[k] > 0;
    if (grows && mode == Mode::kReflect) good = good && begin[k] < d && end[k] < d;
    if (grows && (mode == Mode::kEdge || mode == Mode::kWrap)) good = good && d > 0;
    if (!good)
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the mode or the pads of dimension %d are not valid",
                    k);
    out.dims[k] = d + begin[k] + end[k];
  }
  return OPFORGE_STATUS_OK;
}

// Where coordinate `at` of the result comes from, -1 = the constant.
int64_t source(Mode mode, int64_t at, int64_t size) {
  if (at >= 0 && at < size) return at;
  switch (mode) {
    case Mode::kEdge:
      return at < 0 ? 0 : size - 1;
    case Mode::kReflect:
      return at < 0 ? -at : 2 * (size - 1) - at;
    case Mode::kWrap:
      return (at % size + size) % size;
    default:
      return -1;
  }
}

Status pad_run(RunContext& c) {
  const Tensor& in = c.inputs[0];
  Tensor& out = c.outputs[0];
  if (out.shape.elements() == 0) return OPFORGE_STATUS_OK;
  const Mode mode = mode_of(*c.attributes);
  int64_t begin[kMaxRank], end[kMaxRank], strides[kMaxRank];
  int32_t missing = -1;
  read_pads(c.inputs, c.n_inputs, begin, end, &missing);
  dense_strides(in.shape, strides);
  const int64_t element = element_bytes(in.dtype);
  uint8_t value[8] = {};
  if (c.n_inputs > 2 && c.inputs[2].present())
    std::memcpy(value, c.inputs[2].data, static_cast<size_t>(element));
  if (out.shape.rank == 0) {
    std::memcpy(out.data, in.data, static_cast<size_t>(element));
    return OPFORGE_STATUS_OK;
  }
  const int last = out.shape.rank - 1;
  const int64_t width = out.shape[-1], rows = out.shape.elements() / width;
  // The middle of a row that lies inside the input is one block.
  const int64_t inside0 = greater<int64_t>(0, begin[last]);
  const int64_t inside1 = greater(inside0, lesser(width, begin[last] + in.shape[-1]));
  with_word(element, [&](auto word) {
    using Word = decltype(word);
    Word fill;
    std::memcpy(&fill, value, sizeof fill);
    const Word* input = in.as<Word>();
    c.parallel(rows, greater<int64_t>(1, 16384 / width), [&](int64_t first, int64_t stop) {
      for (int64_t r = first; r < stop; ++r) {
        int64_t rest = r, from = 0;
        bool constant = false;
        for (int k = last - 1; k >= 0; --k) {
          const int64_t at = source(mode, rest % out.shape.dims[k] - begin[k], in.shape.dims[k]);
          rest /= out.shape.dims[k];
          constant = constant || at < 0;
          from += at * strides[k];
        }
        Word* to = out.as<Word>() + r * width;
        const auto filled = [&](int64_t x0, int64_t x1) {
          for (int64_t x = x0; x < x1; ++x) to[x] = fill;
        };
        const auto border = [&](int64_t x0, int64_t x1) {
          if (mode == Mode::kConstant) return filled(x0, x1);
          for (int64_t x = x0; x < x1; ++x) to[x] = input[from + source(mode, x - begin[last], in.shape[-1])];
        };
        if (constant) {
          filled(0, width);
          continue;
        }
        border(0, lesser(inside0, width));
        if (inside1 > inside0)
          std::memcpy(to + inside0, input + from + inside0 - begin[last],
                      static_cast<size_t>(inside1 - inside0) * sizeof(Word));
        border(inside1, width);
      }
    });
  });
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"", "Pad", 11, kNewest, nullptr, pad_infer, pad_run, kStrings, 2, 4},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(pad, opforge::kRows);
