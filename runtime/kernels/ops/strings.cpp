// strings.cpp: comparing, joining and converting strings: StringEqual, StringCast (made by the compiler for
// Equal and Cast), StringConcat.
#include "kernels/texts.h"
#include "kernels/types.h"

namespace opforge {
namespace {

using namespace kernels;

// Where the elements of two broadcast inputs lie, in the order of the output's elements.
class Pairs {
 public:
  Pairs(const Tensor& a, const Tensor& b, const Shape& out) : out_(out) {
    broadcast_strides(a.shape, out, strides_[0]);
    broadcast_strides(b.shape, out, strides_[1]);
  }
  void at(int64_t k, int64_t* a, int64_t* b) const {
    *a = *b = 0;
    for (int d = out_.rank - 1; d >= 0; --d) {
      *a += k % out_.dims[d] * strides_[0][d];
      *b += k % out_.dims[d] * strides_[1][d];
      k /= out_.dims[d];
    }
  }

 private:
  const Shape& out_;
  int64_t strides_[2][kMaxRank];
};

Status pair_infer(InferContext& c, DType made) {
  if (Status status = check_movable(c, -1)) return status;
  if (!is_string(c.inputs[0]) || !is_string(c.inputs[1]) || c.outputs[0].dtype != made)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the inputs are not two tensors of strings");
  if (!broadcast(c.inputs[0].shape, c.inputs[1].shape, &c.outputs[0].shape))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the shapes of the inputs do not fit together");
  return OPFORGE_STATUS_OK;
}

Status equal_infer(InferContext& c) { return pair_infer(c, DType::kBool); }

Status equal_run(RunContext& c) {
  const Tensor &x = c.inputs[0], &y = c.inputs[1], &out = c.outputs[0];
  const Pairs pairs(x, y, out.shape);
  c.parallel(out.shape.elements(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      int64_t a, b;
      pairs.at(k, &a, &b);
      const bool same = x.as<uint32_t>()[a] == y.as<uint32_t>()[b];  // as numbers: then as texts, too
      out.as<uint8_t>()[k] = same || same_bytes(text_at(*c.texts, x, a), text_at(*c.texts, y, b));
    }
  });
  return OPFORGE_STATUS_OK;
}

Status concat_infer(InferContext& c) { return pair_infer(c, DType::kString); }

Status concat_run(RunContext& c) {
  const Tensor &x = c.inputs[0], &y = c.inputs[1], &out = c.outputs[0];
  const Pairs pairs(x, y, out.shape);
  for (int64_t k = 0; k < out.shape.elements(); ++k) {
    int64_t a, b;
    pairs.at(k, &a, &b);
    const StringView left = text_at(*c.texts, x, a), right = text_at(*c.texts, y, b);
    char* made = c.texts->make(left.size + right.size, out.as<uint32_t>() + k);
    if (made == nullptr) return no_texts(c);
    if (left.size > 0) std::memcpy(made, left.data, static_cast<size_t>(left.size));
    if (right.size > 0) std::memcpy(made + left.size, right.data, static_cast<size_t>(right.size));
  }
  return OPFORGE_STATUS_OK;
}

// Half types come and go through f32, by a Cast of the compiler.
bool has_text(DType dtype) { return has_type(dtype) || dtype == DType::kBool; }

Status cast_infer(InferContext& c) {
  if (Status status = check_movable(c, -1)) return status;
  const DType x = c.inputs[0].dtype, y = c.outputs[0].dtype;
  if (!(x == DType::kString ? y == DType::kString || has_text(y) : y == DType::kString && has_text(x)))
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "no conversion between these dtypes");
  c.outputs[0].shape = c.inputs[0].shape;
  if (x == y) c.alias_input[0] = 0;
  return OPFORGE_STATUS_OK;
}

Status cast_run(RunContext& c) {
  const Tensor &x = c.inputs[0], &y = c.outputs[0];
  const int64_t n = x.shape.elements();
  if (x.dtype == y.dtype) {
    if (n > 0 && x.data != y.data) std::memcpy(y.data, x.data, static_cast<size_t>(n) * sizeof(uint32_t));
    return OPFORGE_STATUS_OK;
  }
  for (int64_t k = 0; k < n; ++k) {
    if (y.dtype == DType::kString) {
      char text[kNumberText];
      const int64_t size = write_number(x.dtype, x.data, k, text);
      if (!put_text(c, y, k, {text, size})) return no_texts(c);
      continue;
    }
    const StringView text = text_at(*c.texts, x, k);
    if (read_number(text, y.dtype, y.data, k)) continue;
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "element %lld is no number of the wanted dtype: '%.*s'", static_cast<long long>(k),
                  static_cast<int>(lesser<int64_t>(text.size, 80)), text.data);
  }
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"opforge", "StringEqual", 1, 1, nullptr, equal_infer, equal_run, kStrings, 2},
    {"opforge", "StringCast", 1, 1, nullptr, cast_infer, cast_run, kStrings},
    {"", "StringConcat", 20, kNewest, nullptr, concat_infer, concat_run, kStrings, 2},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(strings, opforge::kRows);
