// params.h: what the parameters of one of our layers say (docs/design/engines.md): attributes, and of each
// tensor its dtype and form.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "common/attributes.h"
#include "common/plan.h"
#include "ncnn/api.h"

namespace opforge::ncnn_host {

using namespace adapter;  // NOLINT: what every adapter shares

constexpr int kCounts = 20, kDtypes = 21, kForms = 22, kResults = 23, kLayout = 24;
constexpr int kLayoutVersion = 1, kMostAttributes = 20;
constexpr int kTypeInt = 2, kTypeFloat = 3, kTypeEmpty = 4, kTypeInts = 5, kTypeFloats = 6;

enum Form { kAsIs = 0, kWithoutFirst = 1, kNoAxes = 2, kUnread = -1 };

struct Mat {
  explicit Mat(ncnn_handle made) : handle(made) {}
  ~Mat() {
    if (handle != nullptr) ncnn_mat_destroy(handle);
  }
  Mat(const Mat&) = delete;
  Mat& operator=(const Mat&) = delete;
  ncnn_handle release() {
    ncnn_handle const made = handle;
    handle = nullptr;
    return made;
  }
  ncnn_handle handle;
};

class Params {
 public:
  Params(ncnn_handle dict, const Plan& plan) : dict_(dict), plan_(plan) {}

  int type(int id) const { return ncnn_paramdict_get_type(dict_, id); }

  // A list, or one number as a list of it; the words are int32 or float32 as type() says.
  std::vector<int32_t> words(int id) const {
    const int held = type(id);
    if (held == kTypeInt) return {ncnn_paramdict_get_int(dict_, id, 0)};
    if (held == kTypeFloat) {
      const float value = ncnn_paramdict_get_float(dict_, id, 0.0f);
      int32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      return {bits};
    }
    if (held == kTypeEmpty) return {};
    if (held != kTypeInts && held != kTypeFloats) {
      throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, plan_.where, "a parameter is missing",
                    "id " + std::to_string(id), "type " + std::to_string(held),
                    "convert the model again with this version of opforge");
    }
    const Mat none(ncnn_mat_create());
    const Mat array(ncnn_paramdict_get_array(dict_, id, none.handle));
    const auto* data = static_cast<const int32_t*>(ncnn_mat_get_data(array.handle));
    return data == nullptr ? std::vector<int32_t>()
                           : std::vector<int32_t>(data, data + ncnn_mat_get_w(array.handle));
  }
  std::vector<double> floats(int id) const {
    std::vector<double> values;
    const bool numbers = type(id) == kTypeFloat || type(id) == kTypeFloats || type(id) == kTypeInts;
    for (const int32_t bits : words(id)) {  // a list of whole numbers is one of bits
      float value = static_cast<float>(bits);
      if (numbers) std::memcpy(&value, &bits, sizeof value);
      values.push_back(static_cast<double>(value));
    }
    return values;
  }

 private:
  ncnn_handle dict_;
  const Plan& plan_;
};

// One node of ours: its attributes and forms.
struct Node {
  Attributes attributes;
  std::vector<std::string> texts;  // what string attributes point into
  std::vector<int32_t> counts, forms, results;
  std::vector<opforge_dtype> dtypes;  // of each input tensor
};

inline void read_attribute(const Params& params, int id, const detail::Attribute& declared, Node* node) {
  const auto first = [&](const auto& values) {
    if (values.size() == 1) return values[0];
    throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, declared.name, "an attribute cannot be read", "one number",
                  std::to_string(values.size()) + " numbers");
  };
  const auto text = [&](const std::vector<int32_t>& words, size_t begin, size_t size) {
    if (begin + size > words.size() || begin + size < begin) {
      throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, declared.name, "an attribute cannot be read",
                    std::to_string(size) + " bytes", std::to_string(words.size()) + " words");
    }
    std::string made;
    for (size_t k = 0; k < size; ++k) made += static_cast<char>(words[begin + k]);
    node->texts.push_back(std::move(made));
    return opforge_string{node->texts.back().data(), static_cast<int64_t>(node->texts.back().size())};
  };
  switch (declared.kind) {
    case OPFORGE_ATTRIBUTE_FLOAT:
      return node->attributes.add_float(first(params.floats(id)));
    case OPFORGE_ATTRIBUTE_FLOATS:
      return node->attributes.add_floats(params.floats(id));
    case OPFORGE_ATTRIBUTE_STRING: {
      const std::vector<int32_t> words = params.words(id);
      return node->attributes.add_string(text(words, 0, words.size()));
    }
    case OPFORGE_ATTRIBUTE_STRINGS: {
      const std::vector<int32_t> words = params.words(id);
      std::vector<opforge_string> views;
      size_t place = 1;
      for (int32_t k = 0; !words.empty() && k < words[0]; ++k) {
        if (place >= words.size() || words[place] < 0) text(words, words.size(), 1);
        const auto size = static_cast<size_t>(words[place]);
        views.push_back(text(words, place + 1, size));
        place += size + 1;
      }
      return node->attributes.add_strings(std::move(views));
    }
    case OPFORGE_ATTRIBUTE_INT:
      return node->attributes.add_int(first(params.words(id)));
    case OPFORGE_ATTRIBUTE_BOOL:
      return node->attributes.add_bool(first(params.words(id)) != 0);
    default: {
      const std::vector<int32_t> words = params.words(id);
      return node->attributes.add_ints(std::vector<int64_t>(words.begin(), words.end()), declared.kind);
    }
  }
}

// Reads and checks; whatever a run relies on is checked here.
inline void read_node(const Params& params, const Plan& plan, Node* node) {
  const detail::Signature& signature = plan.signature;
  if (signature.attributes.size() > static_cast<size_t>(kMostAttributes)) {
    throw failure(OPFORGE_STATUS_UNSUPPORTED, plan.where, "a layer has room for 20 attributes");
  }
  // Texts are pointed into, so that they must not move: at most as many as there are words.
  size_t room = 0;
  for (size_t a = 0; a < signature.attributes.size(); ++a)
    room += params.words(static_cast<int>(a)).size() + 1;
  node->texts.reserve(room);
  for (size_t a = 0; a < signature.attributes.size(); ++a) {
    read_attribute(params, static_cast<int>(a), signature.attributes[a], node);
  }
  node->counts = params.words(kCounts);
  node->forms = params.words(kForms);
  node->results = params.words(kResults);
  for (const int32_t code : params.words(kDtypes)) {
    const opforge_dtype dtype{static_cast<uint8_t>(code >> 8), static_cast<uint8_t>(code & 255), 1};
    if (dtype.bits != 32 || (dtype.code != OPFORGE_CODE_FLOAT && dtype.code != OPFORGE_CODE_INT)) {
      throw failure(OPFORGE_STATUS_TYPE, plan.where, "a tensor of ncnn holds float32 or int32", "f32 or i32",
                    detail::dtype_name(dtype));
    }
    node->dtypes.push_back(dtype);
  }
  size_t tensors = 0;
  bool fits = node->counts.size() == signature.inputs.size();
  for (size_t p = 0; fits && p < node->counts.size(); ++p) {
    const detail::Parameter& input = signature.inputs[p];
    fits = node->counts[p] >= (input.optional || input.variadic ? 0 : 1);
    fits = fits && (input.variadic || node->counts[p] <= 1);
    tensors += static_cast<size_t>(node->counts[p] > 0 ? node->counts[p] : 0);
  }
  fits = fits && tensors == node->forms.size() && tensors == node->dtypes.size();
  for (const int32_t form : node->forms) fits = fits && form >= kAsIs && form <= kNoAxes;
  for (const int32_t form : node->results) fits = fits && form >= kUnread && form <= kNoAxes;
  if (!fits || params.words(kLayout) != std::vector<int32_t>{kLayoutVersion}) {
    throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, plan.where, "the layer's inputs are described wrongly",
                  signature.expected_inputs(), std::to_string(tensors) + " tensors",
                  "convert the model again with this version of opforge");
  }
}

}  // namespace opforge::ncnn_host
