// random.cpp: RandomUniform, RandomNormal, their Like forms, Bernoulli, Multinomial, and Dropout in training.
#include "kernels/random.h"

#include "kernels/move.h"
#include "kernels/types.h"

namespace opforge {
namespace {

using namespace kernels;

constexpr int64_t kGrain = 4096;

Status load(LoadContext& c) {
  RandomSource* s = new_state<RandomSource>(c);
  if (s == nullptr) return no_memory(c);
  s->load(*c.attributes);
  return OPFORGE_STATUS_OK;
}

// ---- RandomUniform, RandomNormal: the shape is an attribute, or that of the input
Status fill_infer(InferContext& c) {
  if (!is_real(c.outputs[0].dtype) || !is_plain(c.outputs[0])) return no_type(c);
  Shape& y = c.outputs[0].shape;
  if (c.n_inputs > 0 && c.inputs[0].present()) {
    y = c.inputs[0].shape;
    return OPFORGE_STATUS_OK;
  }
  const int64_t* dims = nullptr;
  int64_t count = 0;
  bool good = c.attributes->get_ints("shape", &dims, &count) && count <= kMaxRank;
  for (int64_t k = 0; good && k < count; ++k) {
    good = dims[k] >= 0;
    y.dims[k] = dims[k];
  }
  if (!good) return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "shape is no short list of sizes");
  y.rank = static_cast<int32_t>(count);
  return OPFORGE_STATUS_OK;
}

template <bool NORMAL>
Status fill_run(RunContext& c) {
  const Random random = static_cast<RandomSource*>(c.state)->next();
  const double low = c.attributes->get_float(NORMAL ? "mean" : "low", 0);
  const double high = c.attributes->get_float(NORMAL ? "scale" : "high", 1);
  with_real(c.outputs[0].dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    T* y = c.outputs[0].as<T>();
    c.parallel(c.outputs[0].shape.elements(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const auto at = static_cast<uint64_t>(k);
        const double v = NORMAL ? low + high * random.normal(at) : low + (high - low) * random.uniform(at);
        y[k] = static_cast<T>(v);
        // Rounding must not reach the upper end, which is excluded.
        if (!NORMAL && low < high && y[k] >= static_cast<T>(high)) y[k] = static_cast<T>(low);
      }
    });
  });
  return OPFORGE_STATUS_OK;
}

// ---- Bernoulli: 1 with the probability that the input says
Status bernoulli_infer(InferContext& c) {
  const DType out = c.outputs[0].dtype;
  if (!is_real(c.inputs[0].dtype) || !is_plain(c.inputs[0]) || !is_plain(c.outputs[0]) ||
      (!has_type(out) && out != DType::kBool))
    return no_type(c);
  c.outputs[0].shape = c.inputs[0].shape;
  return OPFORGE_STATUS_OK;
}

Status bernoulli_run(RunContext& c) {
  const Random random = static_cast<RandomSource*>(c.state)->next();
  const Tensor& x = c.inputs[0];
  const DType out = c.outputs[0].dtype == DType::kBool ? DType::kU8 : c.outputs[0].dtype;
  with_type(out, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    T* y = c.outputs[0].as<T>();
    c.parallel(x.shape.elements(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const double p = is_f32(x) ? static_cast<double>(x.as<float>()[k]) : x.as<double>()[k];
        y[k] = random.uniform(static_cast<uint64_t>(k)) < p ? T(1) : T(0);
      }
    });
  });
  return OPFORGE_STATUS_OK;
}

// ---- Multinomial: draws of classes by log-probabilities [batch, classes]
Status multinomial_infer(InferContext& c) {
  const int64_t draws = c.attributes->get_int("sample_size", 1);
  const Tensor& x = c.inputs[0];
  if (!is_real(x.dtype) || !is_plain(x) || !is_index(c.outputs[0]) || !is_plain(c.outputs[0]))
    return no_type(c);
  if (x.shape.rank != 2 || x.shape[1] < 1 || draws < 0 || draws > INT32_MAX)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "Multinomial takes [batch, classes] and a number of samples");
  Shape& y = c.outputs[0].shape;
  y.rank = 2;
  y.dims[0] = x.shape[0], y.dims[1] = draws;
  c.scratch_bytes = 8 * scratch_floats(x.shape[1]) * c.max_threads;
  return OPFORGE_STATUS_OK;
}

Status multinomial_run(RunContext& c) {
  const Random random = static_cast<RandomSource*>(c.state)->next();
  const Tensor& x = c.inputs[0];
  const int64_t classes = x.shape[1], draws = c.outputs[0].shape[1];
  for_units(c, draws == 0 ? 0 : x.shape[0], [&](int64_t slot, int64_t row) {
    double* sums = static_cast<double*>(c.scratch) + slot * scratch_floats(classes);
    const auto at = [&](int64_t k) {
      return is_f32(x) ? static_cast<double>(x.as<float>()[row * classes + k])
                       : x.as<double>()[row * classes + k];
    };
    double top = at(0), total = 0;
    for (int64_t k = 1; k < classes; ++k) top = greater(top, at(k));
    for (int64_t k = 0; k < classes; ++k) sums[k] = total += std::exp(at(k) - top);
    for (int64_t d = 0; d < draws; ++d) {
      const double wanted = random.uniform(static_cast<uint64_t>(row * draws + d)) * total;
      int64_t low = 0, high = classes - 1;  // the first class whose sum lies above
      while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (sums[middle] > wanted)
          high = middle;
        else
          low = middle + 1;
      }
      if (c.outputs[0].dtype == DType::kI32)
        c.outputs[0].as<int32_t>()[row * draws + d] = static_cast<int32_t>(low);
      else
        c.outputs[0].as<int64_t>()[row * draws + d] = low;
    }
  });
  return OPFORGE_STATUS_OK;
}

// ---- Dropout
Status dropout_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype, DType::kBool)) return wrong;
  if (!is_real(c.inputs[0].dtype) || !is_plain(c.inputs[0])) return no_type(c);
  const bool training =
      !given(c, 2) || (c.inputs[2].dtype == DType::kBool && c.inputs[2].shape.elements() == 1);
  if (!training || (given(c, 1) && (!is_number(c.inputs[1]) || !is_real(c.inputs[1].dtype))))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "ratio or training_mode is no single number of its type");
  for (int32_t k = 0; k < c.n_outputs; ++k) c.outputs[k].shape = c.inputs[0].shape;
  c.inplace_input[0] = 0;
  return OPFORGE_STATUS_OK;
}

Status dropout_run(RunContext& c) {
  const bool training = given(c, 2) && *c.inputs[2].as<uint8_t>() != 0;
  const double ratio = !training ? 0 : given(c, 1) ? number_of(c.inputs[1]) : 0.5;
  if (!(ratio >= 0 && ratio < 1))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the ratio is %g, expected [0, 1)", ratio);
  const Random random = static_cast<RandomSource*>(c.state)->next();
  uint8_t* mask = wanted(c, 1) ? c.outputs[1].as<uint8_t>() : nullptr;
  with_real(c.inputs[0].dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* x = c.inputs[0].as<T>();
    T* y = wanted(c, 0) ? c.outputs[0].as<T>() : nullptr;
    const T scale = static_cast<T>(1 / (1 - ratio));
    c.parallel(c.inputs[0].shape.elements(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const bool keep = ratio == 0 || random.uniform(static_cast<uint64_t>(k)) >= ratio;
        if (y != nullptr) y[k] = keep ? (ratio == 0 ? x[k] : x[k] * scale) : T(0);
        if (mask != nullptr) mask[k] = keep;
      }
    });
  });
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"", "RandomUniform", 1, kNewest, load, fill_infer, fill_run<false>, kNotPure, 0},
    {"", "RandomNormal", 1, kNewest, load, fill_infer, fill_run<true>, kNotPure, 0},
    {"", "RandomUniformLike", 1, kNewest, load, fill_infer, fill_run<false>, kNotPure},
    {"", "RandomNormalLike", 1, kNewest, load, fill_infer, fill_run<true>, kNotPure},
    {"", "Bernoulli", 15, kNewest, load, bernoulli_infer, bernoulli_run, kNotPure},
    {"", "Multinomial", 7, kNewest, load, multinomial_infer, multinomial_run, kNotPure},
    {"", "Dropout", 12, kNewest, load, dropout_infer, dropout_run, kNotPure | kAnyOutput, 1, 3, 2},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(random, opforge::kRows);
