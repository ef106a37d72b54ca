// native.cpp: the module opforge._lib._native: session, checksum and facts about the runtime.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "binding/session.h"

namespace nb = nanobind;
using opforge::binding::PySession;

namespace {

// Any contiguous buffer.
uint32_t crc32c(nb::handle data, uint32_t crc) {
  Py_buffer view;
  if (PyObject_GetBuffer(data.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
  uint32_t result;
  {
    nb::gil_scoped_release release;
    result = opforge_crc32c(crc, view.buf, static_cast<size_t>(view.len));
  }
  PyBuffer_Release(&view);
  return result;
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "The compiled part of opforge: sessions over .bin files.";
  m.def("crc32c", &crc32c, nb::arg("data"), nb::arg("crc") = 0);
  m.def("version", [] { return nb::str(opforge_runtime_version()); });
  m.def("isa", [] { return nb::str(opforge_runtime_isa()); });
  m.def("report_faults_of", &opforge_report_faults_of, nb::arg("what"));
  m.def("thread_count", [] { return opforge_thread_count(); });
  m.def("measure_flops", &opforge_measure_flops, nb::arg("threads"),
        nb::call_guard<nb::gil_scoped_release>());
  m.def("measure_copy", &opforge_measure_copy, nb::arg("threads"), nb::arg("bytes"),
        nb::call_guard<nb::gil_scoped_release>());
  nb::class_<PySession>(m, "Session")
      .def(nb::init<const std::string&, int, bool, const std::vector<std::string>&,
                    const std::vector<std::string>&, bool, bool, bool, nb::dict, int64_t, int64_t>(),
           nb::arg("path"), nb::arg("threads"), nb::arg("verify_full"), nb::arg("libraries"),
           nb::arg("search"), nb::arg("allow_native"), nb::arg("mmap"), nb::arg("reuse"), nb::arg("dtypes"),
           nb::arg("memory_limit") = 0, nb::arg("loop_limit") = 0)
      .def("run", &PySession::run)
      .def("run_values", &PySession::run_values)
      .def("values", &PySession::values)
      .def("metadata", &PySession::metadata)
      .def("statistics", &PySession::statistics)
      .def("prepare", &PySession::prepare)
      .def("plan", &PySession::plan)
      .def("buffers", &PySession::buffers)
      .def("profile", &PySession::profile)
      .def("profile_events", &PySession::profile_events)
      .def("node_times", &PySession::node_times)
      .def("events", &PySession::events)
      .def("node_tensors", &PySession::node_tensors);
}
