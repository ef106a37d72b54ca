# find_package(opforge): the runtime as the target opforge::runtime, its headers and opforge-run.
#
#   find_package(opforge 0.1 REQUIRED CONFIG)
#   target_link_libraries(program PRIVATE opforge::runtime)
#
# with -Dopforge_DIR=$(python -c "import opforge; print(opforge.cmake_dir())").
get_filename_component(_opforge "${CMAKE_CURRENT_LIST_DIR}" DIRECTORY)
set(opforge_LIBRARY_DIR "${_opforge}/_lib")
set(opforge_INCLUDE_DIR "${_opforge}/include")
if(NOT EXISTS "${opforge_INCLUDE_DIR}/opforge/runtime.h")  # a source tree
  get_filename_component(opforge_INCLUDE_DIR "${_opforge}/../../include" ABSOLUTE)
endif()
set(opforge_RUN_EXECUTABLE "${opforge_LIBRARY_DIR}/opforge-run")

foreach(_file "${opforge_INCLUDE_DIR}/opforge/runtime.h" "${opforge_LIBRARY_DIR}/libopforge.so")
  if(NOT EXISTS "${_file}")
    set(opforge_FOUND FALSE)
    set(opforge_NOT_FOUND_MESSAGE "${_file} is missing: install opforge again, or run `make native` in its source tree")
    return()
  endif()
endforeach()

if(NOT TARGET opforge::runtime)
  add_library(opforge::runtime SHARED IMPORTED)
  set_target_properties(opforge::runtime PROPERTIES
    IMPORTED_LOCATION "${opforge_LIBRARY_DIR}/libopforge.so"
    IMPORTED_SONAME libopforge.so
    INTERFACE_INCLUDE_DIRECTORIES "${opforge_INCLUDE_DIR}"
    INTERFACE_COMPILE_FEATURES c_std_99)
endif()
unset(_opforge)
unset(_file)
