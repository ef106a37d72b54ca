// double.cpp: as much of ncnn's C API as our layers call, for tests without ncnn: tensors whose channels
// begin at multiples of 16 bytes, parameters, one layer. main() reads a scenario from words on stdin and
// prints results.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "opforge_ncnn.h"

struct Tensor {
  int dims = 0, w = 0, h = 0, d = 0, c = 0;
  size_t elemsize = 0, cstep = 0;
  int elempack = 1;
  std::vector<char> memory;
};
struct Option {
  int asked = 0;
};
struct Dict {
  std::map<int, std::pair<int, std::vector<int32_t>>> rows;  // id -> type, words
};
struct Layer {
  void* pthis;
  int (*load_param)(Layer*, void*);
  int (*load_model)(Layer*, void*);
  int (*create_pipeline)(Layer*, void*);
  int (*destroy_pipeline)(Layer*, void*);
  int (*forward_1)(Layer*, void*, void**, void*);
  int (*forward_n)(Layer*, void* const*, int, void**, int, void*);
  int (*forward_inplace_1)(Layer*, void*, void*);
  int (*forward_inplace_n)(Layer*, void**, int, void*);
  std::map<std::string, int> flags;
};
struct Kind {
  Layer* (*create)(void*);
  void (*destroy)(Layer*, void*);
  void* user;
};
struct Net {  // keeps the pointers to names, as ncnn does
  std::vector<std::pair<const char*, Kind>> kinds;
  const Kind* find(const std::string& name) const {
    for (const auto& entry : kinds) {
      if (name == entry.first) return &entry.second;
    }
    return nullptr;
  }
};

static int live_tensors = 0;

static Tensor* made(int dims, int w, int h, int d, int c, size_t size, int pack) {
  auto* t = new Tensor;
  ++live_tensors;
  t->dims = dims, t->w = w, t->h = h, t->d = d, t->c = c, t->elemsize = size, t->elempack = pack;
  const size_t plane = size_t(w) * size_t(h) * size_t(d);
  t->cstep = dims >= 3 ? (plane * size + 15) / 16 * 16 / size : plane;
  t->memory.assign(t->cstep * size_t(c) * size + 1, 0x7f);
  return t;
}

extern "C" {
Layer* ncnn_layer_create(void) { return new Layer(); }
void ncnn_layer_destroy(Layer* l) { delete l; }
#define FLAG(name) \
  void ncnn_layer_set_##name(Layer* l, int v) { l->flags[#name] = v; }
FLAG(one_blob_only)
FLAG(support_inplace)
FLAG(support_vulkan)
FLAG(support_packing)
FLAG(support_bf16_storage)
FLAG(support_fp16_storage)
void* ncnn_mat_create(void) { return made(0, 0, 0, 0, 0, 4, 1); }
void* ncnn_mat_create_1d_elem(int w, size_t s, int p, void*) { return made(1, w, 1, 1, 1, s, p); }
void* ncnn_mat_create_2d_elem(int w, int h, size_t s, int p, void*) { return made(2, w, h, 1, 1, s, p); }
void* ncnn_mat_create_3d_elem(int w, int h, int c, size_t s, int p, void*) {
  return made(3, w, h, 1, c, s, p);
}
void* ncnn_mat_create_4d_elem(int w, int h, int d, int c, size_t s, int p, void*) {
  return made(4, w, h, d, c, s, p);
}
void ncnn_mat_destroy(void* t) {
  if (t == nullptr) std::abort();
  --live_tensors;
  delete static_cast<Tensor*>(t);
}
#define GET(type, name) \
  type ncnn_mat_get_##name(void* t) { return static_cast<Tensor*>(t)->name; }
GET(int, dims)
GET(int, w)
GET(int, h)
GET(int, d)
GET(int, c)
GET(size_t, elemsize)
GET(int, elempack)
GET(size_t, cstep)
void* ncnn_mat_get_data(void* t) {
  return static_cast<Tensor*>(t)->dims ? static_cast<Tensor*>(t)->memory.data() : nullptr;
}
int ncnn_paramdict_get_type(void* d, int id) {
  const auto& rows = static_cast<Dict*>(d)->rows;
  const auto found = rows.find(id);
  return found == rows.end() ? 0 : found->second.first;
}
int ncnn_paramdict_get_int(void* d, int id, int) { return static_cast<Dict*>(d)->rows.at(id).second.at(0); }
float ncnn_paramdict_get_float(void* d, int id, float) {
  float value;
  std::memcpy(&value, &static_cast<Dict*>(d)->rows.at(id).second.at(0), 4);
  return value;
}
void* ncnn_paramdict_get_array(void* d, int id, void* otherwise) {
  if (otherwise == nullptr) std::abort();
  const auto& words = static_cast<Dict*>(d)->rows.at(id).second;
  Tensor* t = made(1, int(words.size()), 1, 1, 1, 4, 1);
  std::memcpy(t->memory.data(), words.data(), words.size() * 4);
  return t;
}
int ncnn_option_get_num_threads(void* option) {
  ++static_cast<Option*>(option)->asked;
  return 3;
}
void ncnn_net_register_custom_layer_by_type(void* net, const char* kind, Layer* (*create)(void*),
                                            void (*destroy)(Layer*, void*), void* user) {
  static_cast<Net*>(net)->kinds.push_back({kind, {create, destroy, user}});
}
}

// Words: library, kind, parameters (count, then id type n words...), inputs (count, then dims w h d c
// elempack bits...), number of outputs.
int main() {
  std::string library, kind;
  std::cin >> library >> kind;
  Net net;
  const int registered = opforge_ncnn_register(&net, library.c_str());
  std::cout << "registered " << registered << "\n";
  if (registered < 0) return std::cout << opforge_ncnn_error() << "\n", 0;
  const std::string noise(4096, 'x');  // over what was freed
  const Kind* const found = net.find(kind);
  if (found == nullptr || noise.empty()) return std::cout << "no such kind\n", 0;
  Dict dict;
  int count = 0;
  std::cin >> count;
  while (count-- > 0) {
    int id, type, n;
    std::cin >> id >> type >> n;
    auto& row = dict.rows[id];
    row.first = type;
    for (int32_t word; n-- > 0 && std::cin >> word;) row.second.push_back(word);
  }
  Layer* layer = found->create(found->user);
  if (layer->load_param(layer, &dict) != 0)
    return std::cout << "load_param " << opforge_ncnn_error() << "\n", 0;
  for (const auto& flag : layer->flags) std::cout << flag.first << " " << flag.second << "\n";
  std::cin >> count;
  std::vector<void*> bottoms;
  while (count-- > 0) {
    int dims, w, h, d, c, pack;
    std::cin >> dims >> w >> h >> d >> c >> pack;
    Tensor* t = made(dims, w, h, d, c, size_t(4 * pack), pack);
    for (int q = 0; q < c; ++q) {
      for (int64_t k = 0; k < int64_t(w) * h * d * pack; ++k) {
        int32_t word;
        std::cin >> word;
        std::memcpy(t->memory.data() + 4 * (int64_t(t->cstep) * q * pack + k), &word, 4);
      }
    }
    bottoms.push_back(t);
  }
  std::cin >> count;
  std::vector<void*> tops(size_t(count), nullptr);
  Option option;
  const bool one = layer->flags["one_blob_only"] != 0;
  const int code =
      one ? layer->forward_1(layer, bottoms[0], &tops[0], &option)
          : layer->forward_n(layer, bottoms.data(), int(bottoms.size()), tops.data(), count, &option);
  std::cout << "code " << code << "\nasked for threads " << option.asked << "\n";
  if (code != 0) std::cout << opforge_ncnn_error() << "\n";
  for (void* top : tops) {
    const auto* t = static_cast<Tensor*>(top);
    std::cout << "tensor " << t->dims << " " << t->w << " " << t->h << " " << t->d << " " << t->c;
    for (int q = 0; q < t->c; ++q) {
      for (int64_t k = 0; k < int64_t(t->w) * t->h * t->d; ++k) {
        int32_t word;
        std::memcpy(&word, t->memory.data() + 4 * (int64_t(t->cstep) * q + k), 4);
        std::cout << " " << word;
      }
    }
    std::cout << "\n";
    ncnn_mat_destroy(top);
  }
  for (void* bottom : bottoms) ncnn_mat_destroy(bottom);
  found->destroy(layer, found->user);
  std::cout << "left " << live_tensors << "\n";
}
