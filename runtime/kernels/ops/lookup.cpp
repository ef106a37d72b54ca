// lookup.cpp: Lookup (made by the compiler for LabelEncoder and its kin): where each element stands in a list
// of constant keys. The list is sorted once, so that a hostile one cannot make a search longer than its
// logarithm.
#include <algorithm>

#include "kernels/texts.h"
#include "kernels/types.h"

namespace opforge {
namespace {

using namespace kernels;

struct Keys {
  int64_t count = 0;
  uint32_t* order = nullptr;  // by key, equal ones by their place
  StringView* texts = nullptr;
  const void* numbers = nullptr;
  DType dtype = DType::kUndefined;
};

// NaN stands behind all numbers, and is equal to itself.
template <class T>
bool before(T a, T b) {
  return a < b || (a == a && b != b);
}
bool before(StringView a, StringView b) {
  if (a.size != b.size) return a.size < b.size;
  return a.size != 0 && std::memcmp(a.data, b.data, static_cast<size_t>(a.size)) < 0;
}

// Calls f(key, given): how to read key number k, and element k of a tensor, of this dtype. False for others.
template <class F>
bool with_keys(const Keys& keys, const Texts* texts, F&& f) {
  if (keys.dtype == DType::kString) {
    f([&](uint32_t k) { return keys.texts[k]; },
      [texts](const Tensor& x, int64_t k) { return text_at(*texts, x, k); });
    return true;
  }
  return with_type(keys.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* numbers = static_cast<const T*>(keys.numbers);
    f([numbers](uint32_t k) { return numbers[k]; }, [](const Tensor& x, int64_t k) { return x.as<T>()[k]; });
  });
}

Status lookup_load(LoadContext& c) {
  Keys* s = new_state<Keys>(c);
  if (s == nullptr) return no_memory(c);
  const Tensor& keys = c.n_inputs > 1 ? c.inputs[1] : c.inputs[0];
  s->dtype = keys.dtype;
  if (keys.shape.rank != 1 || !is_plain(keys) || keys.packing != Packing::kNone ||
      (keys.data == nullptr && keys.shape.dims[0] != 0) || (!has_type(keys.dtype) && !is_string(keys)) ||
      keys.shape.dims[0] > UINT32_MAX)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the keys are no constant list of strings or numbers");
  s->count = keys.shape.dims[0];
  s->numbers = keys.data;
  s->order = static_cast<uint32_t*>(c.allocate(&c, static_cast<size_t>(s->count) * sizeof(uint32_t)));
  if (s->order == nullptr) return no_memory(c);
  for (int64_t k = 0; k < s->count; ++k) s->order[k] = static_cast<uint32_t>(k);
  if (is_string(keys)) {
    s->texts = static_cast<StringView*>(c.allocate(&c, static_cast<size_t>(s->count) * sizeof(StringView)));
    if (s->texts == nullptr) return no_memory(c);
    for (int64_t k = 0; k < s->count; ++k) s->texts[k] = text_at(*c.texts, keys, k);
  }
  with_keys(*s, c.texts, [&](auto key, auto) {
    std::sort(s->order, s->order + s->count, [&](uint32_t a, uint32_t b) {
      return before(key(a), key(b)) || (!before(key(b), key(a)) && a < b);
    });
  });
  return OPFORGE_STATUS_OK;
}

Status lookup_infer(InferContext& c) {
  if (Status status = check_movable(c, -1)) return status;
  const Keys& s = *static_cast<Keys*>(c.state);
  if (c.inputs[0].dtype != s.dtype || c.outputs[0].dtype != DType::kI64)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "the input has not the dtype of the keys, or the output not i64");
  c.outputs[0].shape = c.inputs[0].shape;
  return OPFORGE_STATUS_OK;
}

Status lookup_run(RunContext& c) {
  const Keys& s = *static_cast<Keys*>(c.state);
  const Tensor& x = c.inputs[0];
  auto* y = c.outputs[0].as<int64_t>();
  with_keys(s, c.texts, [&](auto key, auto given) {
    c.parallel(x.shape.elements(), 1024, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const auto wanted = given(x, k);
        // The last of equal keys counts, as in a dictionary that is filled in order.
        const uint32_t* at = std::upper_bound(s.order, s.order + s.count, wanted,
                                              [&](const auto& w, uint32_t n) { return before(w, key(n)); });
        y[k] = at == s.order || before(key(at[-1]), wanted) ? s.count : at[-1];
      }
    });
  });
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"opforge", "Lookup", 1, 1, lookup_load, lookup_infer, lookup_run, kStrings, 2},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(lookup, opforge::kRows);
