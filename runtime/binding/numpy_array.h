// numpy_array.h: what the binding needs of NumPy's C API, through the capsule that every NumPy exports.
//
// The declarations are our own, so that building the package needs no NumPy. The places in the function table
// and the head of the array object are part of NumPy's ABI since 1.0 and are the same in 2.x;
// tests/unit/bin/test_session_inputs.py would fail at once where they were not.
#pragma once

#include <Python.h>

#include <cstdint>

namespace opforge::numpy {

struct Array {  // PyArrayObject_fields
  PyObject_HEAD char* data;
  int nd;
  Py_ssize_t* dimensions;
  Py_ssize_t* strides;
  PyObject* base;
  PyObject* descr;
  int flags;
};
constexpr int kContiguous = 0x0001, kAligned = 0x0100, kWriteable = 0x0400;

struct Api {
  PyTypeObject* array_type = nullptr;
  // type, descr (stolen), nd, dims, strides, data, flags, object
  PyObject* (*new_from_descr)(PyTypeObject*, PyObject*, int, const Py_ssize_t*, const Py_ssize_t*, void*, int,
                              PyObject*) = nullptr;

  // False with a Python error set.
  bool load() {
    if (array_type != nullptr) return true;
    PyObject* module = PyImport_ImportModule("numpy._core._multiarray_umath");
    if (module == nullptr) {
      PyErr_Clear();
      module = PyImport_ImportModule("numpy.core._multiarray_umath");  // NumPy 1.x
    }
    if (module == nullptr) return false;
    PyObject* capsule = PyObject_GetAttrString(module, "_ARRAY_API");
    Py_DECREF(module);
    if (capsule == nullptr) return false;
    void** table = static_cast<void**>(PyCapsule_GetPointer(capsule, nullptr));
    Py_DECREF(capsule);
    if (table == nullptr) return false;
    new_from_descr = reinterpret_cast<decltype(new_from_descr)>(table[94]);
    array_type = static_cast<PyTypeObject*>(table[2]);
    return true;
  }
  bool is_array(PyObject* object) const { return PyObject_TypeCheck(object, array_type) != 0; }
};

inline Array* array(PyObject* object) { return reinterpret_cast<Array*>(object); }

}  // namespace opforge::numpy
