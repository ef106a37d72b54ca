// session.h: the Python side of a session: NumPy arrays in and out, errors as opforge's exceptions.
#pragma once

#include <nanobind/nanobind.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "binding/numpy_array.h"
#include "opforge/runtime.h"

namespace opforge::binding {

namespace nb = nanobind;

// Throws the exception of opforge.errors that stands for the last error of this thread.
[[noreturn]] void raise_last_error();

class PySession {
 public:
  // dtypes: ONNX number -> numpy.dtype. Limits: 0 = none.
  PySession(const std::string& path, int threads, bool verify_full, const std::vector<std::string>& libraries,
            const std::vector<std::string>& search, bool allow_native, bool mmap, bool reuse, nb::dict dtypes,
            int64_t memory_limit = 0, int64_t loop_limit = 0);
  ~PySession();
  PySession(const PySession&) = delete;
  PySession& operator=(const PySession&) = delete;

  // {name: array} -> {name: array}; arrays must be dense and of the declared dtype.
  nb::object run(nb::handle inputs);
  // For models with strings, sequences or optionals: None or a list of dense arrays per input and output, in
  // order. Arrays of strings hold str or bytes as inputs, str as outputs.
  nb::list run_values(const nb::list& inputs);
  nb::list values(bool inputs) const;  // (name, onnx dtype, dims or None, kind) each
  nb::dict metadata() const;
  nb::dict statistics() const;
  void prepare(const std::vector<std::vector<int64_t>>& shapes);  // one per input, in order
  nb::list plan() const;                                          // (kind, id, offset, size) each
  // (scratch, id, values, first, last, offset, size) each
  nb::list buffers() const;
  void profile(bool on);
  void profile_events(int64_t most, int32_t every);
  nb::list node_times() const;
  // (records of opforge_event as bytes, events that were lost)
  nb::tuple events() const;
  // (onnx dtype, bytes, dims or None) of each input, then each output; empty when it is not executed
  nb::list node_tensors(int32_t node) const;

 private:
  struct Port {
    PyObject* name;   // interned
    PyObject* dtype;  // numpy.dtype
    opforge_dtype dlpack;
  };
  struct Request;
  [[noreturn]] void refuse_output(const opforge_value_info& info);
  void close();
  class Held;
  bool fill(PyObject* array, const Port& port, opforge_tensor* tensor);
  static nb::object array_of(const Port& port, const opforge_tensor& tensor);
  // The elements of arrays of objects as the runtime takes them, and the objects whose bytes they are.
  struct Strings {
    std::deque<std::vector<opforge_string>> tensors;
    std::vector<nb::object> objects;
  };
  static void borrow_strings(const Port& port, opforge_tensor* tensor, Strings* strings);
  static void make_strings(const opforge_tensor& tensor, PyObject** to);
  // Arrays hold elements of less than a byte one per byte, the runtime packs them.
  using Packed = std::deque<std::vector<uint8_t>>;
  static void pack(const Port& port, opforge_tensor* tensor, Packed* packed);
  static void unpack(const Port& port, const void* from, size_t elements, void* to);
  static void* allocate(void* user, int32_t index, int32_t onnx_dtype, const int64_t* shape, int32_t ndim,
                        size_t bytes);

  opforge_session* session_ = nullptr;
  std::vector<Port> inputs_, outputs_;
  bool packs_ = false;  // some input or output has elements of less than a byte
};

}  // namespace opforge::binding
