// session.cpp: a run from Python costs one pass over the dictionary, one array object per output and the
// release of the interpreter lock; the C API does the rest.
#include "binding/session.h"

namespace opforge::binding {
namespace {

numpy::Api api;

constexpr int kFew = 16;

const char* exception_name(opforge_status status) {
  switch (status) {
    case OPFORGE_STATUS_INVALID_ARGUMENT:
      return "ArgumentError";
    case OPFORGE_STATUS_TYPE:
      return "DtypeError";
    case OPFORGE_STATUS_UNSUPPORTED:
      return "UnsupportedError";
    case OPFORGE_STATUS_CORRUPT:
      return "CorruptFileError";
    case OPFORGE_STATUS_NOT_FOUND:
      return "MissingOperatorError";
    case OPFORGE_STATUS_OUT_OF_MEMORY:
      return "OpforgeError";
    default:
      return "InternalError";
  }
}

nb::object text_or_none(const char* text) {
  if (text[0] == '\0') return nb::none();
  return nb::steal(PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(std::strlen(text)), "replace"));
}

[[noreturn]] void raise(opforge_status status, const opforge_error& e) {
  const nb::object type = nb::module_::import_("opforge.errors").attr(exception_name(status));
  nb::dict keywords;
  keywords["where"] = text_or_none(e.where);
  keywords["expected"] = text_or_none(e.expected);
  keywords["got"] = text_or_none(e.got);
  keywords["hint"] = text_or_none(e.hint);
  const nb::object error = type(text_or_none(e.what), **keywords);
  PyErr_SetObject(type.ptr(), error.ptr());
  throw nb::python_error();
}

size_t elements_of(const opforge_tensor& tensor) {
  size_t n = 1;
  for (int32_t k = 0; k < tensor.ndim; ++k) n *= static_cast<size_t>(tensor.shape[k]);
  return n;
}

}  // namespace

void raise_last_error() {
  const opforge_error& e = *opforge_last_error();
  raise(e.status, e);
}

PySession::PySession(const std::string& path, int threads, bool verify_full,
                     const std::vector<std::string>& libraries, const std::vector<std::string>& search,
                     bool allow_native, bool mmap, bool reuse, nb::dict dtypes, int64_t memory_limit,
                     int64_t loop_limit) {
  if (!api.load()) throw nb::python_error();
  std::vector<const char*> library_texts, search_texts;
  for (const std::string& text : libraries) library_texts.push_back(text.c_str());
  for (const std::string& text : search) search_texts.push_back(text.c_str());
  opforge_session_options options = {};
  options.size = sizeof options;
  options.threads = threads;
  options.verify = verify_full ? OPFORGE_VERIFY_FULL : OPFORGE_VERIFY_LAZY;
  options.no_mmap = mmap ? 0 : 1;
  options.no_reuse = reuse ? 0 : 1;
  options.refuse_native = allow_native ? 0 : 1;
  options.memory_limit = memory_limit;
  options.loop_limit = loop_limit;
  options.libraries = library_texts.data();
  options.n_libraries = static_cast<int32_t>(library_texts.size());
  options.search = search_texts.data();
  options.n_search = static_cast<int32_t>(search_texts.size());
  opforge_status status;
  {
    nb::gil_scoped_release release;
    status = opforge_session_open(path.c_str(), &options, &session_);
  }
  if (status != OPFORGE_STATUS_OK) raise_last_error();
  auto port = [&](const opforge_value_info* info) {
    PyObject* name = PyUnicode_FromString(info->name);
    PyUnicode_InternInPlace(&name);
    const nb::object dtype = nb::borrow(dtypes.attr("get")(info->onnx_dtype, nb::none()));
    return Port{name, dtype.is_none() ? nullptr : nb::object(dtype).release().ptr(), info->dtype};
  };
  for (int32_t k = 0; k < opforge_session_input_count(session_); ++k)
    inputs_.push_back(port(opforge_session_input(session_, k)));
  for (int32_t k = 0; k < opforge_session_output_count(session_); ++k)
    outputs_.push_back(port(opforge_session_output(session_, k)));
  for (const std::vector<Port>* ports : {&inputs_, &outputs_})
    for (const Port& port : *ports) packs_ = packs_ || port.dlpack.bits < 8;
  for (int32_t k = 0; k < opforge_session_output_count(session_); ++k) {
    if (outputs_[static_cast<size_t>(k)].dtype == nullptr)
      refuse_output(*opforge_session_output(session_, k));
  }
}

PySession::~PySession() { close(); }

// An output that no array can hold: better said now than in the first run.
void PySession::refuse_output(const opforge_value_info& info) {
  const std::string where = "output '" + std::string(info.name) + "'";
  const std::string got = "ONNX dtype " + std::to_string(info.onnx_dtype);
  close();
  raise(OPFORGE_STATUS_UNSUPPORTED, {OPFORGE_STATUS_UNSUPPORTED, "NumPy has no dtype for an output",
                                     where.c_str(), "a dtype with whole bytes per element", got.c_str(),
                                     "cast the output in the model, or run the file through the C API", ""});
}

void PySession::close() {
  for (std::vector<Port>* ports : {&inputs_, &outputs_}) {
    for (Port& port : *ports) {
      Py_XDECREF(port.name);
      Py_XDECREF(port.dtype);
    }
  }
  inputs_.clear();
  outputs_.clear();
  opforge_session_close(session_);
  session_ = nullptr;
}

struct PySession::Request {
  PySession* self;
  PyObject* arrays[kFew] = {};
  std::vector<PyObject*> many;
  PyThreadState* thread = nullptr;
  PyObject** slot(int32_t k) { return many.empty() ? arrays + k : many.data() + k; }
};

// Called by the runtime while the interpreter lock is released: takes it to make the array.
void* PySession::allocate(void* user, int32_t index, int32_t, const int64_t* shape, int32_t ndim, size_t) {
  auto* request = static_cast<Request*>(user);
  PyEval_RestoreThread(request->thread);
  const Port& port = request->self->outputs_[static_cast<size_t>(index)];
  void* data = nullptr;
  if (port.dtype != nullptr) {
    Py_ssize_t dims[16] = {};
    for (int32_t k = 0; k < ndim; ++k) dims[k] = static_cast<Py_ssize_t>(shape[k]);
    Py_INCREF(port.dtype);
    PyObject* array =
        api.new_from_descr(api.array_type, port.dtype, ndim, dims, nullptr, nullptr, 0, nullptr);
    if (array == nullptr)
      PyErr_Clear();
    else
      data = numpy::array(array)->data;
    *request->slot(index) = array;
  }
  request->thread = PyEval_SaveThread();
  return data;
}

// True when the array can be used where it lies: dense, aligned, native byte order, of the declared dtype.
bool PySession::fill(PyObject* object, const Port& port, opforge_tensor* tensor) {
  if (!api.is_array(object)) return false;
  numpy::Array* array = numpy::array(object);
  constexpr int kWanted = numpy::kContiguous | numpy::kAligned;
  if ((array->flags & kWanted) != kWanted || array->nd > 16) return false;
  if (array->descr != port.dtype) {
    const int same = port.dtype == nullptr ? 0 : PyObject_RichCompareBool(array->descr, port.dtype, Py_EQ);
    if (same < 0) PyErr_Clear();
    if (same <= 0) return false;
  }
  static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "shapes are handed on where they lie");
  *tensor = {};
  tensor->data = array->data;
  tensor->device = {OPFORGE_DEVICE_CPU, 0};
  tensor->ndim = array->nd;
  tensor->dtype = port.dlpack;
  tensor->shape = reinterpret_cast<int64_t*>(array->dimensions);
  return true;
}

void PySession::pack(const Port& port, opforge_tensor* tensor, Packed* packed) {
  const size_t bits = port.dlpack.bits;
  if (bits >= 8) return;
  const size_t n = elements_of(*tensor), per = 8 / bits;
  const auto* from = static_cast<const uint8_t*>(tensor->data);
  std::vector<uint8_t> bytes((n + per - 1) / per);
  for (size_t i = 0; i < n; ++i)
    bytes[i / per] =
        static_cast<uint8_t>(bytes[i / per] | (from[i] & ((1u << bits) - 1)) << (i % per * bits));
  packed->push_back(std::move(bytes));
  tensor->data = packed->back().data();
}

// From the end, since byte i holds elements of index i and more: from and to may be the same.
void PySession::unpack(const Port& port, const void* from, size_t elements, void* to) {
  const size_t bits = port.dlpack.bits, per = 8 / bits;
  const auto* bytes = static_cast<const uint8_t*>(from);
  for (size_t i = elements; i-- > 0;)
    static_cast<uint8_t*>(to)[i] =
        static_cast<uint8_t>(bytes[i / per] >> (i % per * bits) & ((1u << bits) - 1));
}

// Keeps the inputs alive while the interpreter lock is released: another thread may change the dictionary.
class PySession::Held {
 public:
  explicit Held(size_t count) {
    if (count > kFew) many_.resize(count);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    for (size_t k = 0; k < used_; ++k) Py_DECREF(slots()[k]);
  }
  void add(PyObject* object) {
    Py_INCREF(object);
    slots()[used_++] = object;
  }

 private:
  PyObject** slots() { return many_.empty() ? few_ : many_.data(); }
  PyObject* few_[kFew];
  std::vector<PyObject*> many_;
  size_t used_ = 0;
};

nb::object PySession::run(nb::handle inputs) {
  if (!PyDict_Check(inputs.ptr())) throw nb::type_error("run() takes a dictionary of arrays by input name");
  opforge_tensor few[kFew];
  std::vector<opforge_tensor> many;
  opforge_tensor* tensors = few;
  if (inputs_.size() + outputs_.size() > kFew) {
    many.resize(inputs_.size() + outputs_.size());
    tensors = many.data();
  }
  Held held(inputs_.size());
  // The quick way: every input is there, and fits as it lies. Otherwise Python code looks closer.
  if (PyDict_Size(inputs.ptr()) != static_cast<Py_ssize_t>(inputs_.size())) return nb::none();
  for (size_t k = 0; k < inputs_.size(); ++k) {
    PyObject* array = PyDict_GetItemWithError(inputs.ptr(), inputs_[k].name);
    if (array == nullptr || !fill(array, inputs_[k], &tensors[k])) {
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      return nb::none();
    }
    held.add(array);
  }
  opforge_tensor* results = tensors + inputs_.size();
  for (size_t k = 0; k < outputs_.size(); ++k) results[k] = {};
  Packed packed;
  for (size_t k = 0; packs_ && k < inputs_.size(); ++k) pack(inputs_[k], &tensors[k], &packed);
  Request request{this, {}, {}, nullptr};
  if (outputs_.size() > kFew) request.many.resize(outputs_.size());
  opforge_run run = {};
  run.size = sizeof run;
  run.inputs = tensors;
  run.n_inputs = static_cast<int32_t>(inputs_.size());
  run.outputs = results;
  run.n_outputs = static_cast<int32_t>(outputs_.size());
  run.allocate = allocate;
  run.allocate_user = &request;
  request.thread = PyEval_SaveThread();
  const opforge_status status = opforge_session_run(session_, &run);
  PyEval_RestoreThread(request.thread);
  for (size_t k = 0; packs_ && status == OPFORGE_STATUS_OK && k < outputs_.size(); ++k) {
    if (outputs_[k].dlpack.bits < 8)
      unpack(outputs_[k], results[k].data, elements_of(results[k]), results[k].data);
  }
  nb::object result = nb::steal(status == OPFORGE_STATUS_OK ? PyDict_New() : nullptr);
  for (size_t k = 0; k < outputs_.size(); ++k) {
    PyObject* array = *request.slot(static_cast<int32_t>(k));
    if (result.is_valid() && array != nullptr) PyDict_SetItem(result.ptr(), outputs_[k].name, array);
    Py_XDECREF(array);
  }
  if (status != OPFORGE_STATUS_OK) raise_last_error();
  return result;
}

nb::object PySession::array_of(const Port& port, const opforge_tensor& tensor) {
  Py_ssize_t dims[16] = {};
  for (int32_t k = 0; k < tensor.ndim; ++k) dims[k] = static_cast<Py_ssize_t>(tensor.shape[k]);
  Py_INCREF(port.dtype);
  nb::object made = nb::steal(
      api.new_from_descr(api.array_type, port.dtype, tensor.ndim, dims, nullptr, nullptr, 0, nullptr));
  if (!made.is_valid()) throw nb::python_error();
  char* to = numpy::array(made.ptr())->data;
  const size_t elements = elements_of(tensor);
  if (port.dlpack.code == OPFORGE_CODE_STRING)
    make_strings(tensor, reinterpret_cast<PyObject**>(to));
  else if (port.dlpack.bits < 8)
    unpack(port, tensor.data, elements, to);
  else if (elements != 0)
    std::memcpy(to, tensor.data, elements * (port.dlpack.bits / 8));
  return made;
}

// Session._dense has looked: all elements are str or bytes.
void PySession::borrow_strings(const Port& port, opforge_tensor* tensor, Strings* strings) {
  if (port.dlpack.code != OPFORGE_CODE_STRING) return;
  auto* const* from = static_cast<PyObject* const*>(tensor->data);
  strings->tensors.emplace_back(elements_of(*tensor));
  for (opforge_string& text : strings->tensors.back()) {
    PyObject* object = *from++;
    if (object == nullptr) object = Py_None;
    strings->objects.push_back(nb::borrow(object));
    Py_ssize_t size = 0;
    if (PyBytes_Check(object)) {
      char* bytes = nullptr;
      PyBytes_AsStringAndSize(object, &bytes, &size);
      text = {bytes, size};
      continue;
    }
    const char* bytes = PyUnicode_AsUTF8AndSize(object, &size);  // kept by the object
    if (bytes == nullptr) throw nb::python_error();
    text = {bytes, size};
  }
  tensor->data = strings->tensors.back().data();
}

void PySession::make_strings(const opforge_tensor& tensor, PyObject** to) {
  const auto* from = static_cast<const opforge_string*>(tensor.data);
  for (size_t k = 0; k < elements_of(tensor); ++k) {
    PyObject* text = PyUnicode_DecodeUTF8(from[k].data, static_cast<Py_ssize_t>(from[k].size), "strict");
    if (text == nullptr) throw nb::python_error();
    PyObject* before = to[k];
    to[k] = text;
    Py_XDECREF(before);
  }
}

nb::list PySession::run_values(const nb::list& inputs) {
  std::vector<std::vector<opforge_tensor>> tensors(inputs_.size());
  std::vector<opforge_value> values(inputs_.size());
  Packed packed;
  Strings strings;
  for (size_t k = 0; k < inputs_.size(); ++k) {
    const nb::handle given = inputs[k];
    values[k] = {nullptr, -1, 0};
    if (given.is_none()) continue;
    const nb::list items = nb::cast<nb::list>(given);
    for (const nb::handle item : items) {
      tensors[k].emplace_back();
      if (!fill(item.ptr(), inputs_[k], &tensors[k].back()))
        throw nb::type_error("run_values takes dense arrays");
      pack(inputs_[k], &tensors[k].back(), &packed);
      borrow_strings(inputs_[k], &tensors[k].back(), &strings);
    }
    values[k] = {tensors[k].data(), static_cast<int32_t>(tensors[k].size()), 0};
  }
  opforge_results* made = nullptr;
  opforge_status status;
  {
    nb::gil_scoped_release release;
    status = opforge_session_run_values(session_, values.data(), static_cast<int32_t>(values.size()), &made);
  }
  if (status != OPFORGE_STATUS_OK) raise_last_error();
  const std::unique_ptr<opforge_results, void (*)(opforge_results*)> results(made, opforge_results_free);
  nb::list list;
  for (size_t k = 0; k < outputs_.size(); ++k) {
    opforge_value value = {};
    if (opforge_results_value(results.get(), static_cast<int32_t>(k), &value) != OPFORGE_STATUS_OK)
      raise_last_error();
    if (value.count < 0) {
      list.append(nb::none());
      continue;
    }
    nb::list arrays;
    for (int32_t i = 0; i < value.count; ++i) arrays.append(array_of(outputs_[k], value.tensors[i]));
    list.append(arrays);
  }
  return list;
}

}  // namespace opforge::binding
