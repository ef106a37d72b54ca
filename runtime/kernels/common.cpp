// common.cpp: what node kernels share.
#include "kernels/common.h"

#include <limits>

namespace opforge::kernels {

bool weight_kind(const Tensor& weights, WeightKind* kind) {
  switch (weights.dtype) {
    case DType::kF32:
      *kind = WeightKind::kF32;
      return true;
    case DType::kF16:
      *kind = WeightKind::kF16;
      return true;
    case DType::kBF16:
      *kind = WeightKind::kBF16;
      return true;
    default:
      return false;
  }
}

Image image_of(const Tensor& t) {
  Image x{};
  const Layout& l = t.layout;
  x.data = t.as<float>();
  x.images = static_cast<int32_t>(t.shape[0]);
  x.channels = static_cast<int32_t>(t.shape[1]);
  x.height = static_cast<int32_t>(t.shape[2]);
  x.width = static_cast<int32_t>(t.shape[3]);
  if (is_c16(t)) {
    x.top = l.top, x.left = l.left, x.bottom = l.bottom, x.right = l.right;
    x.row = x.width + l.left + l.right;
    x.plane = x.row * (x.height + l.top + l.bottom);
    x.batch = x.plane * padded8(x.channels);
  } else {
    x.row = x.width;
    x.plane = x.row * x.height;
    x.batch = x.plane * x.channels;
  }
  return x;
}

Status check_outputs(InferContext& context, DType first, DType others) {
  for (int32_t k = 0; k < context.n_outputs; ++k) {
    const DType wanted = k == 0 || others == DType::kUndefined ? first : others;
    if (!context.outputs[k].present() || context.outputs[k].dtype == wanted) continue;
    return context.fail(&context, OPFORGE_STATUS_INVALID_ARGUMENT,
                        "output %d does not have the dtype that the kernel gives", k);
  }
  return OPFORGE_STATUS_OK;
}

bool read_activation(const Attributes& attributes, Activation* activation) {
  const StringView name = attributes.get_string("activation", "");
  const auto number = [&](const char* key, double otherwise) {
    return static_cast<float>(attributes.get_float(key, otherwise));
  };
  *activation = Activation();
  activation->o = number("o", 0.5);
  if (equals(name, "")) return true;
  if (equals(name, "relu") || equals(name, "clip")) {
    const float infinity = std::numeric_limits<float>::infinity();
    const bool relu = equals(name, "relu");
    activation->kind = ActivationKind::kClip;
    activation->lo = relu ? 0.0f : number("lo", -infinity);
    activation->hi = relu ? infinity : number("hi", infinity);
    return true;
  }
  if (equals(name, "hardswish")) {
    activation->kind = ActivationKind::kGate;
    activation->s = number("s", 1.0 / 6);
    return true;
  }
  if (equals(name, "affine_hardswish")) {
    activation->kind = ActivationKind::kGateAffine;
    activation->s = number("s", 1.0 / 6);
    activation->t = number("t", 0.0);
    return true;
  }
  if (equals(name, "hardsigmoid")) {
    activation->kind = ActivationKind::kHardSigmoid;
    activation->s = number("s", 0.2);
    return true;
  }
  return false;
}

const float* padded_bias(LoadContext& context, const Tensor* bias, int64_t n) {
  const int64_t padded = (n + 15) / 16 * 16;
  float* memory = static_cast<float*>(context.allocate(&context, sizeof(float) * padded));
  if (memory == nullptr) return nullptr;
  std::memset(memory, 0, sizeof(float) * padded);
  if (bias != nullptr && bias->present()) std::memcpy(memory, bias->data, sizeof(float) * n);
  return memory;
}

void read_ints(const Attributes& attributes, const char* name, int n, int64_t otherwise, int32_t* values) {
  const int64_t* given = nullptr;
  int64_t count = 0;
  const bool present = attributes.get_ints(name, &given, &count);
  for (int i = 0; i < n; ++i) values[i] = static_cast<int32_t>(present && i < count ? given[i] : otherwise);
}

}  // namespace opforge::kernels
